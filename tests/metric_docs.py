"""The metrics that docs/metrics.md tells of, and those that a process exposes, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"


@dataclass(frozen=True)
class Told:
    """One row of the page."""

    name: str
    type: str
    labels: frozenset[str]
    sources: frozenset[str]


def told() -> list[Told]:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `triptych_")
    ]
    return [
        Told(name.strip("`"), kind, _listed(labels.replace("`", "")), _listed(sources))
        for name, kind, _, labels, sources, _ in rows
    ]


def assert_told(source: str, exposition: str) -> None:
    """Each metric of ``source`` is on the page as it is, and all that the page tells is there."""
    expected = {one.name: one for one in told() if source in one.sources}
    found = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(exposition)
    }
    assert set(found) == set(expected), set(found) ^ set(expected)
    for name, family in found.items():
        assert family.type == expected[name].type, name
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == expected[name].labels, sample


def _listed(cell: str) -> frozenset[str]:
    return frozenset(part.strip() for part in cell.split(",") if part.strip())
