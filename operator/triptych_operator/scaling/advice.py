"""How many pods an autoscaler would set, by the algorithm of the HorizontalPodAutoscaler. Pure.

As its documentation has it ("Horizontal Pod Autoscaling", algorithm details): a tolerance of 0.1;
of several metrics the one that asks for most pods counts; one that is missing never takes pods
away. Without what it keeps back over time (stabilization windows, policies): this is where it is
heading. Metrics that others measure are missing here, and are named as such.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triptych_operator.api.autoscaling import Signal
from triptych_operator.scaling.policy import Target, TierPolicy

TOLERANCE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Advice:
    """So many pods, the signal that asked for them, and those that had no say."""

    pods: int
    signal: Signal | None  # none: they stay as they are for want of a signal
    without: tuple[Signal, ...] = ()  # each once: measured by others, or told by no pod


def advice(policy: TierPolicy, values: Mapping[Signal, float], current: int, ready: int) -> Advice:
    """What an autoscaler would set.

    Args:
        values: sums over the tier of what is shared, means of the rest.
        current: pods that the tier should have now; ``ready`` of them are.
    """
    known = [one for one in policy.targets if one.signal in values]
    asked = [(_asked(one, values[one.signal], current, ready), one.signal) for one in known]
    pods, signal = max(asked, key=lambda one: one[0], default=(current, None))
    if len(known) < len(policy.targets) and pods < current:
        pods, signal = current, None
    missing = dict.fromkeys(one.signal for one in policy.targets if one.signal not in values)
    return Advice(min(max(pods, policy.min), policy.max), signal, tuple(missing))


def _asked(target: Target, value: float, current: int, ready: int) -> int:
    pods = current if target.shared else 1
    ratio = value / (target.target * max(pods, 1))
    if current and abs(ratio - 1) <= TOLERANCE:
        return current
    return math.ceil(ratio * max(pods, 1) if target.shared else ratio * ready)
