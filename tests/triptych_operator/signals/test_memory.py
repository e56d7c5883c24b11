"""Which pods are asked, and for how long an answer stands."""

from __future__ import annotations

from triptych_contract.names import Metric, Tier
from triptych_operator.observed.snapshot import Pod
from triptych_operator.observed.store import ServiceKey
from triptych_operator.signals.memory import STANDING, WINDOW, Asked, Memory
from triptych_operator.signals.page import Reading, Series

IMAGES = Series(Metric.IMAGES)


def asked(name: str, namespace: str = "default") -> Asked:
    return Asked(ServiceKey(namespace, "shapes"), Tier.ENCODER, Pod(name, "r", ready=True))


def standing(memory: Memory, present: list[Asked], now: float) -> list[str]:
    """The names of those that count after another round."""
    return [told.name for told in memory.end_round(present, now) if told.history is not None]


def test_what_pods_told_in_one_round_stands_as_long_for_each_and_no_longer() -> None:
    memory = Memory()
    present = [asked(name) for name in ("a", "b", "never")]
    memory.add(asked("a"), Reading(100.0, {IMAGES: 1.0}))
    memory.add(asked("b"), Reading(104.9, {IMAGES: 1.0}))
    rounds = [standing(memory, present, 105.0 + 5 * number) for number in range(4)]
    assert rounds == [["a", "b"]] * STANDING + [[]]
    memory.add(asked("a"), Reading(120.0, {IMAGES: 1.0}))
    assert standing(memory, present, 120.0) == ["a"]


def test_rounds_far_apart_do_not_make_an_answer_stand_longer_than_the_window() -> None:
    memory = Memory()
    memory.add(asked("a"), Reading(100.0, {}))
    assert standing(memory, [asked("a")], 100.0 + WINDOW) == ["a"]
    assert standing(memory, [asked("a")], 100.1 + WINDOW) == []


def test_pods_of_one_name_in_two_namespaces_are_two() -> None:
    memory = Memory()
    memory.add(asked("a"), Reading(100.0, {}))
    assert standing(memory, [asked("a", "other")], 100.0) == []


def test_what_is_gone_or_older_than_the_window_is_forgotten() -> None:
    memory = Memory()
    for name in ("a", "b"):
        memory.add(asked(name), Reading(100.0, {IMAGES: 1.0}))
    memory.end_round([asked("a")], 100.0 + WINDOW)
    assert memory.last_at(asked("a")) == 100.0
    assert memory.last_at(asked("b")) == float("-inf")
    memory.end_round([asked("a")], 100.1 + WINDOW)
    assert memory.last_at(asked("a")) == float("-inf")
    memory.end_round([], 200.0)
    assert standing(memory, [asked("a")], 100.0) == []
