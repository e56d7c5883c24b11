"""How far a tier has come with its new revision. Pure."""

from __future__ import annotations

import math

from triptych_contract.names import Tier

from triptych_operator.observed.snapshot import TierSnapshot


def is_complete(tier: TierSnapshot, revision: str) -> bool:
    """Every pod that the tier should have is ready and has ``revision``, and no other is left: by
    the pods, and by the Deployment's own status, which a namesake's pods do not deceive."""
    staying = [pod for pod in tier.pods if not pod.terminating]
    return (
        tier.revision == revision
        and tier.rolled_out
        and len(staying) == tier.desired
        and (tier.desired > 0 or tier.rests)
        and all(pod.ready and pod.revision == revision for pod in staying)
    )


def can_take_over(tier: TierSnapshot, revision: str, surge_percent: int) -> bool:
    """Whether nobody needs the tier's old pods any more.

    Of workers, as many new ones run as may come up beside the old. Of gateways, no old one is left
    at all, not even one that still answers its last requests, as those need the old workers.
    """
    if tier.revision != revision or tier.desired == 0:
        return tier.revision == revision and tier.rests
    new = [pod for pod in tier.pods if pod.revision == revision and not pod.terminating]
    old = any(pod.revision != revision for pod in tier.pods)
    if tier.tier is Tier.GATEWAY:
        return not old and sum(pod.ready for pod in new) >= tier.desired
    beside = math.ceil(tier.desired * surge_percent / 100)
    return sum(pod.running for pod in new) >= (min(tier.desired, beside) if old else tier.desired)
