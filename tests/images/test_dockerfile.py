"""What the Dockerfile promises of both images, read as its stages: what one holds comes from those
that it is made from and from what it copies."""

from __future__ import annotations

import re
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
    steps = [one for stage in lineage(stages, image) for one in stage.of("RUN")]
    assert ["from=tools,source=/opt,target=/mnt" in one for one in steps] == [True]
    mount, _, commands = steps[0].partition(" ")
    assert mount.startswith("--mount=type=bind,")
    assert INSTALLS.findall(BORROWED.sub("", commands)) == []
    copied = [one for one in stages[image].of("COPY") if "--from=" in one]
    assert copied == ["--from=code /opt/code /opt/code"]


@pytest.mark.parametrize("image", IMAGES)
def test_it_says_what_it_is(stages: dict[str, Stage], image: str) -> None:
    (labels,) = stages[image].of("LABEL")
    said = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', labels))
    assert tuple(said) == LABELS
    assert said["title"] == f"triptych-{image}"
    arguments = dict(one.split("=") for one in stages[image].of("ARG"))
    assert said["version"] == "${VERSION}"
    assert f'\nversion = "{arguments["VERSION"]}"\n' in (ROOT / "pyproject.toml").read_text()
