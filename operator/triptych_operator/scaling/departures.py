"""Which pods go first when a tier shrinks: those with least in hand, by their deletion cost. Pure.

Kubernetes takes the cheapest pods away first. A cost is worth a write only when it tells something
new: costs are powers of two, move by two of them or to and from nothing, and few at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AT_A_TIME: Final = 10
_STEP: Final = 2


def cost(work: float) -> int:
    """Of a pod with so many requests and leases in hand: the power of two that they come to."""
    return max(1, int(work).bit_length()) if work > 0 else 0


def changes(work: Mapping[str, float], standing: Mapping[str, int]) -> dict[str, int]:
    """The costs to write, by pod; those of the emptiest first.

    Args:
        work: what each pod has in hand, of those that answered.
        standing: the cost that each pod has, of those that stay.
    """
    if len(standing) < 2:  # nothing to choose from
        return {}
    wanted = {pod: cost(work[pod]) for pod in standing if pod in work}
    moved = [pod for pod, new in wanted.items() if _tells(standing[pod], new)]
    first = sorted(moved, key=lambda pod: (wanted[pod], pod))[:AT_A_TIME]
    return {pod: wanted[pod] for pod in first}


def _tells(old: int, new: int) -> bool:
    return abs(new - old) >= _STEP or (new != old and 0 in (new, old))
