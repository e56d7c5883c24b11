"""The HorizontalPodAutoscaler's algorithm, for pools that are simulated. Pure.

From the Kubernetes documentation ("Horizontal Pod Autoscaling": algorithm details, scaling
policies, stabilization window, missing metrics) as of 1.36: a look every 15 s; a tolerance of 0.1;
with several metrics the largest answer counts; metrics that are missing never shrink a pool. Times
are seconds of any one clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

SYNC_SECONDS: Final = 15.0
TOLERANCE: Final = 0.1
_EPSILON: Final = 1e-9  # a ratio that is whole but for rounding asks for no pod more


@dataclass(frozen=True, slots=True)
class Share:
    """An external metric with ``AverageValue``: ``total`` is divided by the pods."""

    total: float | None
    target: float

    def wanted(self, current: int, ready: int) -> int | None:
        """Pods at which each has its target; ``None`` without a value."""
        del ready
        if self.total is None:
            return None
        if current and _near(self.total / (self.target * current)):
            return current
        return _ceil(self.total / self.target)


@dataclass(frozen=True, slots=True)
class Level:
    """An external metric with ``Value``: a mean over the tier, kept at its target."""

    value: float | None
    target: float

    def wanted(self, current: int, ready: int) -> int | None:
        """Ready pods times how far the value is from its target; ``None`` without a value."""
        if self.value is None:
            return None
        ratio = self.value / self.target
        if not current:
            return _ceil(ratio)
        return current if _near(ratio) else _ceil(ratio * ready)


@dataclass(frozen=True, slots=True)
class Utilization:
    """A resource in percent of its request. ``used`` has the ready pods that were measured;
    ``missing`` are ready and were not, ``unready`` do not serve yet."""

    used: Sequence[float]
    missing: int
    unready: int
    target: float

    def wanted(self, current: int, ready: int) -> int | None:
        """As for any mean, but what is not measured works against the change: at 100 % when the
        pool would shrink, at 0 when it would grow."""
        del ready
        if not self.used:
            return None
        ratio = sum(self.used) / len(self.used) / self.target
        grows_early = self.unready > 0 and ratio > 1
        if not grows_early and not self.missing:
            return current if _near(ratio) else _ceil(ratio * len(self.used))
        assumed = max(100.0, self.target) if ratio < 1 else 0.0
        counted = len(self.used) + self.missing + (self.unready if grows_early else 0)
        damped = (sum(self.used) + self.missing * assumed) / counted / self.target
        if _near(damped) or (damped > 1) != (ratio > 1):
            return current
        found = _ceil(damped * counted)
        turns_back = found > current if damped < 1 else found < current
        return current if turns_back else found


Metric = Share | Level | Utilization


@dataclass(frozen=True, slots=True)
class Policy:
    """At most ``value`` pods or percent within ``seconds``."""

    type: Literal["Pods", "Percent"]
    value: int
    seconds: float

    def limit(self, start: int, direction: int) -> int:
        """How far it lets a pool of ``start`` pods go within the period; ``direction`` is 1 or -1.
        Percentages are rounded so that there is always a step to take."""
        if self.type == "Pods":
            return start + direction * self.value
        exact = start * (1 + direction * self.value / 100)
        return math.ceil(exact - _EPSILON) if direction > 0 else math.floor(exact + _EPSILON)


@dataclass(frozen=True, slots=True)
class Rules:
    """The pace in one direction. No policies: it never moves there."""

    window: float
    policies: tuple[Policy, ...]
    select: Literal["Max", "Min"] = "Max"


UP: Final = Rules(0.0, (Policy("Pods", 4, 15.0), Policy("Percent", 100, 15.0)))
DOWN: Final = Rules(300.0, (Policy("Percent", 100, 15.0),))


@dataclass(slots=True)
class Autoscaler:
    """One autoscaler with what it remembers. ``decide`` mutates; call it once per look."""

    least: int
    most: int
    up: Rules = UP
    down: Rules = DOWN
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, current: int, ready: int, metrics: Sequence[Metric]) -> int:
        """Pods that there should be from now on."""
        if not current:
            return 0  # switched off
        if not self._recommended:
            self._recommended.append((now, current))  # what stands when it first looks counts too
        if not self.least <= current <= self.most:
            wanted = min(max(current, self.least), self.most)
        else:
            found = self._wanted(current, ready, metrics)
            if found is None:
                return current
            wanted = self._limited(now, current, self._stabilized(now, current, found))
        if wanted != current:
            self._changes.append((now, wanted - current))
        return wanted

    def _wanted(self, current: int, ready: int, metrics: Sequence[Metric]) -> int | None:
        answers = [metric.wanted(current, ready) for metric in metrics]
        known = [answer for answer in answers if answer is not None]
        if not known or (len(known) < len(answers) and max(known) < current):
            return None
        return max(known)

    def _stabilized(self, now: float, current: int, found: int) -> int:
        """The least of the recommendations in the window to grow, the most of it to shrink."""
        longest = max(self.up.window, self.down.window)
        self._recommended = [one for one in self._recommended if one[0] > now - longest]
        grow = min([found, *(n for at, n in self._recommended if at > now - self.up.window)])
        shrink = max([found, *(n for at, n in self._recommended if at > now - self.down.window)])
        self._recommended.append((now, found))
        return min(max(current, grow), shrink)

    def _limited(self, now: float, current: int, wanted: int) -> int:
        if wanted > current:
            return min(wanted, max(self._limit(now, current, self.up, 1), current), self.most)
        if wanted < current:
            return max(wanted, min(self._limit(now, current, self.down, -1), current), self.least)
        return current

    def _limit(self, now: float, current: int, rules: Rules, direction: int) -> int:
        longest = max((p.seconds for p in (*self.up.policies, *self.down.policies)), default=0.0)
        self._changes = [one for one in self._changes if one[0] > now - longest]
        limits = [
            policy.limit(current - self._changed(now - policy.seconds), direction)
            for policy in rules.policies
        ]
        if not limits:
            return current
        farthest = (rules.select == "Max") == (direction > 0)
        return max(limits) if farthest else min(limits)

    def _changed(self, since: float) -> int:
        return sum(change for at, change in self._changes if at > since)


def _near(ratio: float) -> bool:
    return abs(ratio - 1) <= TOLERANCE


def _ceil(value: float) -> int:
    return math.ceil(value - _EPSILON)
