"""What the Dockerfile promises of both images, read as its stages: what one holds comes from those
that it is made from and from what it copies."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ("operator", "worker")
LABELS = ("title", "description", "licenses", "version", "revision")
# As the stage of the tools has it, mounted for one step alone.
BORROWED = re.compile(r"/mnt/uv/bin/uv (venv|pip install)")
INSTALLS = re.compile(r"\b(apt-get|pip|venv|uv)\b")


@dataclass(frozen=True)
class Stage:
    """One part of the Dockerfile: its instructions without continuation lines and comments."""

    base: str
    instructions: tuple[tuple[str, str], ...]

    def of(self, keyword: str) -> list[str]:
        """The arguments of every instruction of a kind."""
        return [arguments for name, arguments in self.instructions if name == keyword]


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    text = (ROOT / "images/Dockerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    found: dict[str, Stage] = {}
    for line in filter(None, lines):
        keyword, _, arguments = line.partition(" ")
        if keyword == "FROM":
            base, _, name = arguments.partition(" AS ")
            found[name] = Stage(base, ())
        elif found:
            name, last = list(found.items())[-1]
            step = (keyword, " ".join(arguments.split()))
            found[name] = Stage(last.base, (*last.instructions, step))
    return found


def lineage(stages: dict[str, Stage], name: str) -> list[Stage]:
    """The stage, and those that it is made from, up to the base."""
    stage = stages[name]
    return [stage, *(lineage(stages, stage.base) if stage.base in stages else [])]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_made_from_the_base_that_is_given(stages: dict[str, Stage], image: str) -> None:
    assert lineage(stages, image)[-1].base == "${BASE}"
    assert "ARG BASE=" in (ROOT / "images/Dockerfile").read_text().partition("FROM ")[0]


@pytest.mark.parametrize("image", IMAGES)
def test_it_runs_as_a_fixed_number_that_is_not_root(stages: dict[str, Stage], image: str) -> None:
    users = [one for stage in lineage(stages, image) for one in stage.of("USER")]
    assert users == ["65532:65532"]
    keywords = [name for name, _ in stages[image].instructions]
    assert "RUN" not in keywords[keywords.index("USER") :]


@pytest.mark.parametrize("image", IMAGES)
def test_tools_of_the_build_are_borrowed_and_never_copied(
    stages: dict[str, Stage], image: str
) -> None:
    """The installer is mounted for the step that runs it; what is copied is the wheel's content."""
    (step,) = stages[image].of("RUN")
    mount, _, commands = step.partition(" ")
    assert "from=tools,source=/opt,target=/mnt" in mount
    assert mount.startswith("--mount=type=bind,")
    assert INSTALLS.findall(BORROWED.sub("", commands)) == []
    copied = [one for one in stages[image].of("COPY") if "--from=" in one]
    assert copied == ["--from=code /opt/code /opt/code"]


@pytest.mark.parametrize("image", IMAGES)
def test_installers_that_the_base_brings_go_before_anything_comes(
    stages: dict[str, Stage], image: str, tmp_path: Path
) -> None:
    """The files are those of python:3.11-slim, and of Debian's python3-pip and python3-venv."""
    (step,) = stages[stages[image].base].of("RUN")
    site, debian = "local/lib/python3.11/site-packages", "lib/python3/dist-packages"
    gone = (
        "local/bin/pip",
        "local/bin/pip3.11",
        "local/bin/wheel",
        "local/lib/python3.11/ensurepip/_bundled/pip-24.0-py3-none-any.whl",
        f"{site}/pip/__init__.py",
        f"{site}/pip-24.0.dist-info/RECORD",
        f"{site}/setuptools/__init__.py",
        f"{site}/pkg_resources/__init__.py",
        f"{site}/_distutils_hack/__init__.py",
        f"{site}/distutils-precedence.pth",
        f"{site}/wheel-0.45.1.dist-info/RECORD",
        f"{debian}/pip/__init__.py",
        "share/python-wheels/pip-23.0.1-py3-none-any.whl",
    )
    kept = ("bin/pipe", "local/bin/python3.11", f"{site}/pipes/a.py", f"{site}/wheels.py")
    for name in (*gone, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for _ in ("where they are", "where none is"):
        subprocess.run(["sh", "-c", step.replace("/usr", str(tmp_path))], check=True, timeout=10)
        assert {name for name in (*gone, *kept) if (tmp_path / name).exists()} == set(kept)


@pytest.mark.parametrize("image", IMAGES)
def test_it_says_what_it_is(stages: dict[str, Stage], image: str) -> None:
    (labels,) = stages[image].of("LABEL")
    said = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', labels))
    assert tuple(said) == LABELS
    assert said["title"] == f"triptych-{image}"
    arguments = dict(one.split("=") for one in stages[image].of("ARG"))
    assert said["version"] == "${VERSION}"
    assert f'\nversion = "{arguments["VERSION"]}"\n' in (ROOT / "pyproject.toml").read_text()
