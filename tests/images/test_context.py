"""Images are built from what git tracks, as it lies in the checkout."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "hack/image-context"


def test_files_that_git_does_not_track_are_left_out(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)

    (tmp_path / "hack").mkdir()
    shutil.copy(SCRIPT, tmp_path / "hack")
    for name in ("tracked", "deleted", "untracked"):
        (tmp_path / name).write_text("at first")
    git("init", "--quiet")
    git("add", "hack", "tracked", "deleted")
    (tmp_path / "tracked").write_text("changed since")
    (tmp_path / "deleted").unlink()

    made = subprocess.run([tmp_path / "hack/image-context"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        found = {entry.name: archive.extractfile(entry) for entry in archive}
        assert found.keys() == {"hack/image-context", "tracked"}
        content = found["tracked"]
        assert content is not None
        assert content.read() == b"changed since"
