"""Which of several equal pods is asked. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from blake3 import blake3

from triptych_gateway.tiers.fleet import Pod

# A pod may have this much more than an even share of the work before content goes elsewhere.
_MOST_OVER_EVEN: Final = 1.25


def by_content(
    key: bytes, pods: Sequence[Pod], work: Mapping[str, int], exclude: Collection[str] = ()
) -> Pod | None:
    """The pod that ``key`` belongs to, so that what it cached is found again; the next in the key's
    own order while that one has more than its share of ``work`` (by address)."""
    order = _rendezvous(key, [pod for pod in pods if pod.address not in exclude])
    if not order:
        return None
    total = sum(work.get(pod.address, 0) for pod in order)
    bound = math.ceil(_MOST_OVER_EVEN * (total + 1) / len(order))
    return next((pod for pod in order if work.get(pod.address, 0) < bound), order[0])


def least_busy(
    key: bytes,
    pods: Sequence[Pod],
    work: Mapping[str, int],
    exclude: Collection[str] = (),
) -> Pod | None:
    """The pod with the least to do; of equals by ``key``.

    What other gateways send is seen in what the pod says of itself, a little late.
    """
    order = _rendezvous(key, [pod for pod in pods if pod.address not in exclude])
    return min(
        order,
        key=lambda pod: max(work.get(pod.address, 0), pod.busy),
        default=None,
    )


def _rendezvous(key: bytes, pods: Sequence[Pod]) -> list[Pod]:
    """The pods in an order that is ``key``'s own, and that a pod more or less hardly changes."""
    return sorted(pods, key=lambda pod: blake3(pod.address.encode() + b"\0" + key).digest())
