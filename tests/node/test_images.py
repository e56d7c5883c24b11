"""Archives of images, read back as a container runtime reads them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from node.images import Image


@pytest.fixture
def program(tmp_path: Path) -> Path:
    made = tmp_path / "pause"
    made.write_bytes(b"\x7fELF")
    return made


def members(image: Image, leave_out: frozenset[str] = frozenset()) -> dict[str, bytes]:
    stream = io.BytesIO()
    image.write_archive(stream, leave_out=leave_out)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        read = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
        return {name: file.read() for name, file in read.items() if file is not None}


def blob(archive: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = archive[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert len(content) == descriptor["size"]
    assert hashlib.sha256(content).hexdigest() == descriptor["digest"].removeprefix("sha256:")
    return content


def test_a_program_becomes_an_image_that_starts_it_as_nobody(program: Path) -> None:
    archive = members(Image.of_program("example.com/pause:1", program))
    (entry,) = json.loads(archive["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "example.com/pause:1"
    manifest = json.loads(blob(archive, entry))
    config = json.loads(blob(archive, manifest["config"]))
    assert config["config"] == {"Entrypoint": ["/pause"], "User": "65532:65532"}
    layer = blob(archive, manifest["layers"][0])
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert [(file.name, file.mode) for file in files] == [("pause", 0o755)]


def test_the_same_program_gives_the_same_image(program: Path) -> None:
    first = Image.of_program("example.com/pause:1", program)
    program.touch()
    assert Image.of_program("example.com/pause:1", program) == first


def test_blobs_that_the_reader_has_are_left_out(program: Path) -> None:
    image = Image.of_program("example.com/pause:1", program)
    present = frozenset(image.blobs) - {image.manifest}
    assert set(members(image, present)) == {
        "oci-layout",
        "index.json",
        f"blobs/{image.manifest.replace(':', '/')}",
    }


def test_an_image_of_a_layout_is_found_by_its_tag(tmp_path: Path, program: Path) -> None:
    original = Image.of_program("example.com/pause:1", program)
    for name, content in members(original).items():
        path = tmp_path / "layout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    index = tmp_path / "layout/index.json"
    entries = json.loads(index.read_text())
    (entry,) = entries["manifests"]
    entry["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    earlier = {**entry, "digest": "sha256:" + "0" * 64, "annotations": {}}
    index.write_text(json.dumps({**entries, "manifests": [earlier, entry]}))
    read = Image.from_layout(tmp_path / "layout", "example.com/other:1")
    assert read.manifest == original.manifest
    assert members(read).keys() == members(original).keys()
    with pytest.raises(LookupError, match="no image of tag 2"):
        Image.from_layout(tmp_path / "layout", "example.com/other:2")
