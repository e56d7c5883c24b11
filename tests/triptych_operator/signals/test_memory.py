"""Which pods are asked, and for how long an answer stands."""

from __future__ import annotations

from triptych_contract.names import Metric, Tier
from triptych_operator.observed.snapshot import Pod
from triptych_operator.observed.store import ServiceKey
from triptych_operator.signals.memory import LASTING, WINDOW, Asked, Memory
from triptych_operator.signals.page import Reading, Series

IMAGES = Series(Metric.IMAGES)


def asked(name: str, namespace: str = "default") -> Asked:
    return Asked(ServiceKey(namespace, "shapes"), Tier.ENCODER, Pod(name, "r", ready=True))


def test_an_answer_stands_for_a_while_and_no_longer() -> None:
    memory = Memory()
    memory.add(asked("a"), Reading(100.0, {IMAGES: 1.0}))
    assert memory.told(asked("a"), 100.0 + LASTING).history is not None
    assert memory.told(asked("a"), 100.1 + LASTING).history is None
    assert memory.told(asked("b"), 100.0).history is None


def test_pods_of_one_name_in_two_namespaces_are_two() -> None:
    memory = Memory()
    memory.add(asked("a"), Reading(100.0, {}))
    assert memory.told(asked("a", "other"), 100.0).history is None


def test_what_is_gone_or_older_than_the_window_is_forgotten() -> None:
    memory = Memory()
    for name in ("a", "b"):
        memory.add(asked(name), Reading(100.0, {IMAGES: 1.0}))
    memory.forget([asked("a")], 100.0 + WINDOW)
    assert memory.last_at(asked("a")) == 100.0
    assert memory.last_at(asked("b")) == float("-inf")
    memory.forget([asked("a")], 100.1 + WINDOW)
    assert memory.last_at(asked("a")) == float("-inf")
    memory.forget([], 200.0)
    assert memory.told(asked("a"), 100.0).history is None
