"""Which statuses are untrue: of changes made up by hand, one fault in each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from control_plane.faults.history import COMPONENT, MARK, RESOURCE, Change, violations


def template(mark: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {MARK: mark}}}


def resource(version: int, generation: int, mark: str, **status: Any) -> Change:
    body = {
        "metadata": {"uid": "r", "generation": generation},
        "spec": {"tiers": {"encoder": {"replicas": 2, "template": template(mark)}}},
        "status": status,
    }
    return Change(version, RESOURCE, deleted=False, body=body)


def says(version: int, generation: int, mark: str, observed: int, ready: str = "True") -> Change:
    condition = {"type": "Ready", "status": ready, "observedGeneration": observed}
    return resource(version, generation, mark, observedGeneration=observed, conditions=[condition])


def deployment(version: int, mark: str, uid: str = "d") -> Change:
    metadata = {"uid": uid, "name": "r-encoder", "labels": {COMPONENT: "encoder"}}
    body = {"metadata": metadata, "spec": {"replicas": 2, "template": template(mark)}}
    return Change(version, "Deployment", deleted=False, body=body)


def pod(version: int, uid: str, mark: str, ready: str = "True") -> Change:
    metadata = {"uid": uid, "labels": {COMPONENT: "encoder"}, "annotations": {MARK: mark}}
    conditions = [{"type": "Ready", "status": ready}]
    body = {"metadata": metadata, "status": {"conditions": conditions}}
    return Change(version, "Pod", deleted=False, body=body)


CREATED = [resource(1, 1, "a"), deployment(2, "a"), pod(3, "p1", "a"), pod(4, "p2", "a")]


def test_a_status_that_is_true_or_late_is_fine() -> None:
    late = [pod(6, "p1", "a", "False"), says(7, 2, "b", 1), says(8, 2, "b", 2, "False")]
    unseen = resource(1, 1, "a", observedGeneration=-1)  # the definition's default
    assert violations([unseen, *CREATED, says(5, 1, "a", 1), *late]) == []


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ([says(5, 1, "a", 2)], "observedGeneration 2 of generation 1"),
        ([says(5, 2, "b", 2, "False"), says(6, 2, "b", 1, "False")], "fell from 2 to 1"),
        ([says(5, 2, "b", 2)], "should have mark b"),
        ([resource(5, 2, "b"), deployment(6, "b"), says(7, 2, "b", 2)], "0 of 2 pods"),
        (
            [resource(5, 2, "b"), deployment(6, "b"), pod(7, "p3", "b"), says(8, 2, "b", 2)],
            "1 of 2 pods",
        ),
        (
            [
                deployment(5, "b"),
                pod(6, "p3", "b", "False"),
                pod(7, "p4", "b", "False"),
                says(8, 2, "b", 2),
            ],
            "0 of 2 pods",
        ),
        ([deployment(5, "a", "namesake"), says(6, 1, "a", 1)], "0 of 2 pods"),
    ],
)
def test_a_status_that_is_early_is_found(changes: list[Change], wrong: str) -> None:
    found = violations([*CREATED, *changes])
    assert len(found) == 1
    assert wrong in found[0]


def test_a_status_from_before_the_recording_is_not_judged() -> None:
    claim = replace(says(9, 1, "a", 1), before=True)
    assert violations([claim, deployment(10, "a")]) == []


def test_conditions_of_another_generation_are_found() -> None:
    condition = {"type": "Ready", "status": "False", "observedGeneration": 1}
    mixed = resource(5, 2, "b", observedGeneration=2, conditions=[condition])
    assert "conditions about {'Ready': 1}" in violations([*CREATED, mixed])[0]
