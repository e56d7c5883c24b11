"""What all pods told lately, and which pods those are. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from triptych_contract.names import Tier

from triptych_operator.desired import naming
from triptych_operator.observed.snapshot import Pod, pod_of
from triptych_operator.observed.store import ServiceKey, Store
from triptych_operator.signals.history import History
from triptych_operator.signals.measures import PodTold
from triptych_operator.signals.page import Reading

WINDOW: Final = 30.0  # seconds that rates and means look back
STANDING: Final = 3  # rounds that an answer stands for, its own and those that its pod misses
_NEVER: Final = float("-inf")
_TIERS: Final = frozenset(Tier)


@dataclass(frozen=True, slots=True)
class Asked:
    """A pod that is asked for its page."""

    service: ServiceKey
    tier: Tier
    pod: Pod

    @property
    def key(self) -> tuple[str, str]:
        """By which it is remembered."""
        return self.service.namespace, self.pod.name


def pods_to_ask(store: Store) -> Iterator[Asked]:
    """The pods that may have something to tell: not those that wait for a node, or are going, which
    no autoscaler counts. They are those of the moment at which it begins, whatever happens to the
    store meanwhile."""
    for service, child in tuple(store.of_kind("Pod")):
        body = child.body()
        tier = body["metadata"]["labels"].get(naming.COMPONENT, "")
        pod = pod_of(body)
        if pod.address and not pod.terminating and tier in _TIERS:
            yield Asked(service, Tier(tier), pod)


class Memory:
    """One history per pod.

    Answers age by rounds, not by seconds: what pods told in one round must lapse together. When
    all fall silent at once, the seconds by which one had answered before the other would else leave
    the one for a tier of its own, and an autoscaler would follow an idle pod.
    """

    def __init__(self) -> None:
        self._histories: dict[tuple[str, str], History] = {}
        self._answered: dict[tuple[str, str], int] = {}  # the round in which a pod answered last
        self._round = 0

    def add(self, asked: Asked, reading: Reading) -> None:
        """Takes in what a pod has just told."""
        self._histories.setdefault(asked.key, History(WINDOW)).add(reading)
        self._answered[asked.key] = self._round

    def last_at(self, asked: Asked) -> float:
        """When a pod told something last, within the window."""
        history = self._histories.get(asked.key)
        return _NEVER if history is None or history.last_at is None else history.last_at

    def end_round(self, present: Collection[Asked], now: float) -> list[PodTold]:
        """What those that are ``present`` have told, in their order. Every other pod is forgotten,
        and so is what is older than the window."""
        keys = {one.key for one in present}
        self._histories = {key: one for key, one in self._histories.items() if key in keys}
        self._answered = {key: one for key, one in self._answered.items() if key in keys}
        for history in self._histories.values():
            history.forget_before(now)
        told = [PodTold(one.pod.name, one.pod.ready, self._standing(one)) for one in present]
        self._round += 1
        return told

    def _standing(self, asked: Asked) -> History | None:
        history = self._histories.get(asked.key)
        if history is None or history.last_at is None:
            return None
        return history if self._round - self._answered[asked.key] < STANDING else None
