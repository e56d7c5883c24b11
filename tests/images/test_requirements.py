"""What the images install is what the extras need, at the versions that are tested."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# What needs a C compiler, which the image does not hold, and NIXL for another CUDA than torch's.
LEFT_OUT = {"nixl-cu12", "nvidia-cuda-cccl", "setuptools", "triton"}

Extras = frozenset[str]


def pins(file: Path) -> dict[str, str]:
    """Versions by name of a requirements file that holds nothing but exact ones."""
    lines = (line.split("==") for line in file.read_text().splitlines() if line)
    return {canonicalize_name(name): version for name, version in lines}


def needed(name: str, extras: Extras) -> set[str]:
    """All that a distribution with these extras needs, itself not included, as installed here."""
    found: set[str] = set()
    waiting = [(name, extras)]
    seen: set[tuple[str, Extras]] = set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for requirement in _requirements(*current):
            found.add(canonicalize_name(requirement.name))
            waiting.append((requirement.name, frozenset(requirement.extras)))
    return found - {name}


def _requirements(name: str, extras: Extras) -> list[Requirement]:
    lines = importlib.metadata.requires(name) or []
    requirements = [Requirement(line) for line in lines]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


@pytest.mark.parametrize(
    ("image", "extras"),
    [("operator", {"operator"}), ("worker", {"worker", "gateway", "nixl"})],
    ids=["operator", "worker"],
)
def test_an_image_installs_what_its_extras_need_and_nothing_else(
    image: str, extras: set[str]
) -> None:
    installed = pins(ROOT / f"images/{image}-requirements.txt")
    wanted = needed("triptych", frozenset(extras)) - LEFT_OUT
    assert set(installed) == wanted, "run hack/generate-requirements"


@pytest.mark.parametrize("image", ["operator", "worker"])
def test_an_image_has_the_versions_that_are_tested(image: str) -> None:
    tested = pins(ROOT / "constraints.txt")
    installed = pins(ROOT / f"images/{image}-requirements.txt")
    assert installed == {name: tested[name] for name in installed}, "run hack/generate-requirements"


def test_the_operator_holds_no_torch() -> None:
    assert not pins(ROOT / "images/operator-requirements.txt").keys() & {"torch", "transformers"}
