"""Images without a registry: read from an OCI layout, or made of one static program."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"

Json = Mapping[str, object]


@dataclass(frozen=True)
class Image:
    """One image for this machine's kind of processor. ``blobs`` are by digest, manifest included:
    the bytes themselves, or the file that holds them."""

    name: str
    manifest: str  # digest
    blobs: Mapping[str, bytes | Path]

    @classmethod
    def from_layout(cls, folder: Path, name: str) -> Self:
        """The image of ``name``'s tag in an OCI layout ``folder``, to be known as ``name``.

        Raises:
            LookupError: the folder holds none of that tag.
        """
        digest = _tagged(folder, name.rpartition(":")[2])
        manifest = json.loads(_blob(folder, digest).read_text())
        parts = [digest, *(part["digest"] for part in (manifest["config"], *manifest["layers"]))]
        return cls(name, digest, {part: _blob(folder, part) for part in parts})

    @classmethod
    def of_program(cls, name: str, program: Path) -> Self:
        """An image that holds one static program and starts it, as nobody."""
        layer = _layer(program)
        config = _json(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Entrypoint": [f"/{program.name}"], "User": "65532:65532"},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, config),
                "layers": [_descriptor(_LAYER, layer)],
            }
        )
        return cls(
            name, _digest(manifest), {_digest(blob): blob for blob in (config, layer, manifest)}
        )

    def write_archive(self, stream: IO[bytes], leave_out: Set[str] = frozenset()) -> int:
        """Writes the image as a tar of an OCI layout, without the blobs that the reader has; gives
        the bytes of those written."""
        size = _size(self.blobs[self.manifest])
        entry = {
            "mediaType": _MANIFEST,
            "digest": self.manifest,
            "size": size,
            "annotations": {"io.containerd.image.name": self.name},
        }
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
        written = 0
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add(archive, "index.json", _json(index))
            for digest, blob in self.blobs.items():
                if digest not in leave_out or digest == self.manifest:
                    _add(archive, f"blobs/{digest.replace(':', '/')}", blob)
                    written += _size(blob)
        return written


def _tagged(folder: Path, tag: str) -> str:
    for entry in json.loads((folder / "index.json").read_text())["manifests"]:
        if entry.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag:
            return str(entry["digest"])
    raise LookupError(f"{folder} holds no image of tag {tag}")


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")


def _layer(program: Path) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        entry = tarfile.TarInfo(program.name)
        entry.size, entry.mode = program.stat().st_size, 0o755
        with program.open("rb") as content:
            archive.addfile(entry, content)
    return layer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = _size(content)
    if isinstance(content, bytes):
        archive.addfile(entry, io.BytesIO(content))
        return
    with content.open("rb") as stream:
        archive.addfile(entry, stream)


def _descriptor(kind: str, blob: bytes) -> Json:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _size(blob: bytes | Path) -> int:
    return len(blob) if isinstance(blob, bytes) else blob.stat().st_size


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
