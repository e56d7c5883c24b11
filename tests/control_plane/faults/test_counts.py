"""Which counts are untrue: of changes made up by hand."""

from __future__ import annotations

import pytest
from control_plane.faults.counts import untrue_counts
from control_plane.faults.history import COMPONENT, RESOURCE, Change

ENCODERS = {COMPONENT: "encoder"}


def asks(version: int, replicas: int, *, before: bool = False) -> Change:
    body = {"metadata": {"name": "e", "labels": ENCODERS}, "spec": {"replicas": replicas}}
    return Change(version, "Deployment", deleted=False, body=body, before=before)


def pod(version: int, name: str, *, deleted: bool = False, before: bool = False) -> Change:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    body = {"metadata": {"name": name, "labels": ENCODERS}, "status": status}
    return Change(version, "Pod", deleted=deleted, body=body, before=before)


def says(version: int, ready: int, desired: int, *, healthy: bool = False) -> Change:
    tier = {"name": "encoder", "pods": f"{ready}/{desired}", "ready": ready, "desired": desired}
    conditions = [{"type": "EncoderReady", "status": str(healthy)}]
    body = {"metadata": {"name": "r"}, "status": {"tiers": [tier], "conditions": conditions}}
    return Change(version, RESOURCE, deleted=False, body=body)


BEGUN = [asks(1, 1, before=True), pod(2, "p1", before=True)]
GROWN = [*BEGUN, asks(3, 2), says(4, 1, 2), pod(5, "p2"), says(6, 2, 2, healthy=True)]


def test_counts_that_were_so_are_fine_also_when_they_are_told_late() -> None:
    shrunk = [asks(7, 1), pod(8, "p2", deleted=True), says(9, 2, 1), says(10, 1, 1, healthy=True)]
    assert untrue_counts([*GROWN, *shrunk], "encoder") == []


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ([*BEGUN, says(3, 1, 2), asks(4, 2)], "at 3: 1/2 of encoder"),
        ([*BEGUN, asks(3, 2), says(4, 2, 2), pod(5, "p2")], "at 4: 2/2 of encoder"),
        ([*GROWN, says(7, 1, 2)], "at 7: 1/2 of encoder"),
        ([*BEGUN, asks(3, 2), says(4, 1, 2, healthy=True)], "at 4: 1/2 of encoder"),
    ],
    ids=["asked for too early", "ready too early", "back to what was", "healthy but for one"],
)
def test_counts_that_were_not_so_are_named(changes: list[Change], wrong: str) -> None:
    assert untrue_counts(changes, "encoder") == [wrong]
