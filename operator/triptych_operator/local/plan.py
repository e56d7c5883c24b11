"""Which processes serve a resource on one machine, in which order they start and stop. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.runtime import CLAIM_SCHEME

# Whoever takes requests in stops first, then each tier after the one that hands it work, so
# that whatever was accepted can still be finished. Encoders last: prefill fetches from them.
DRAIN_ORDER: Final[tuple[tuple[Tier, ...], ...]] = (
    (Tier.GATEWAY,),
    (Tier.PREFILL, Tier.FUSED),
    (Tier.DECODE,),
    (Tier.ENCODER,),
)
# Decode gives way where cores are short: a step reads every weight, whether for one answer or for
# eight, so steps that wait for pictures and prompts are made up for by larger batches.
NICENESS: Final = {Tier.DECODE: 10}
# And its steps begin no closer than this, in seconds, while cores are short: of two answers each,
# as they would follow at once, they would take what pictures and prompts need.
PACE_SECONDS: Final = {Tier.DECODE: 0.05}
LONGEST_RESTART_DELAY: Final = 30.0  # seconds
STEADY_SECONDS: Final = 60.0  # a process that ran this long begins again with the shortest delay


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process: its name (``decode-1``) and the tier that it runs."""

    name: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """The processes in start order, and how many threads each worker computes with."""

    workers: tuple[PlannedProcess, ...]
    gateway: PlannedProcess
    threads: int

    @property
    def processes(self) -> tuple[PlannedProcess, ...]:
        """All processes, the gateway last."""
        return (*self.workers, self.gateway)


def plan_locally(service: MultimodalService, cores: int, threads: int = 0) -> LocalPlan:
    """The processes for ``service`` on a machine with ``cores`` cores.

    Args:
        threads: threads of each worker; 0 shares the cores evenly, at least one each.

    Raises:
        InvalidRequest: the model lies where only pods can reach it.
    """
    _refuse_claims(service)
    workers = tuple(
        PlannedProcess(f"{tier}-{index}", tier)
        for tier in service.spec.topology.tiers
        if tier is not Tier.GATEWAY
        for index in range(service.spec.tier(tier).initial_replicas)
    )
    # One gateway: a second would need a balancer in front, and one serves a machine's worth.
    gateway = PlannedProcess(f"{Tier.GATEWAY}-0", Tier.GATEWAY)
    return LocalPlan(workers, gateway, threads or max(1, cores // len(workers)))


def restart_delay(deaths: int) -> float:
    """Seconds to wait before the restart after the ``deaths``-th death in a row, from 1 on."""
    return min(LONGEST_RESTART_DELAY, 2.0 ** min(deaths - 1, 16))


def deaths_in_a_row(before: int, ran_seconds: float) -> int:
    """The count after another death: it begins anew for a process that ran steadily."""
    return 1 if ran_seconds >= STEADY_SECONDS else before + 1


def _refuse_claims(service: MultimodalService) -> None:
    model = service.spec.model
    sources = [("spec.model.source", model.source)]
    if model.encoder is not None:
        sources.append(("spec.model.encoder.source", model.encoder.source))
    for field, source in sources:
        if source.startswith(CLAIM_SCHEME):
            raise InvalidRequest(
                f"{field}: {source} is a claim in a cluster; on one machine use builtin://NAME, "
                "hf://ORG/NAME or file:///DIR"
            )
