"""A whole service that is simulated: its pools, its signals by the operator's own code, and an
autoscaler for each pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from triptych_contract.names import Metric, Stage, Tier
from triptych_operator.api.autoscaling import OVER_THE_TIER, ScalingMetric, Signal
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.signals.history import History
from triptych_operator.signals.measures import PodTold, tier_signals
from triptych_operator.signals.memory import WINDOW
from triptych_operator.signals.page import Reading
from triptych_operator.signals.rounds import PERIOD

from bench.autoscaling import hpa
from bench.autoscaling.decoders import Decoders, Room
from bench.autoscaling.fused import Fused
from bench.autoscaling.hpa import DOWN, SYNC_SECONDS, Autoscaler, Level, Rules, Share
from bench.autoscaling.outcomes import PodsSeen
from bench.autoscaling.pools import Clock, Pods, Pool
from bench.autoscaling.trips import Costs, Trip
from bench.autoscaling.workers import Workers

# Of a pod, as the resource has them by default.
QUEUE_TOKENS: Final = 131_072
ROOM: Final = Room(running=64, kv_tokens=32_768)


@dataclass(frozen=True, slots=True)
class Scaling:
    """How one pool follows its load; ``least`` equal to ``most`` never does."""

    least: int
    most: int
    metrics: tuple[ScalingMetric, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A service: the scaling of each of its tiers, which say its topology too."""

    name: str
    scaling: Mapping[Tier, Scaling]
    costs: Costs
    room: Room = ROOM
    start_seconds: float = 30.0
    sync_seconds: float = SYNC_SECONDS
    down: Rules = DOWN


@dataclass(slots=True)
class Controlled:
    """One pool under its autoscaler. Since all pods stand for each other, one page tells of all."""

    tier: Tier
    pool: Pool
    scaling: Scaling
    autoscaler: Autoscaler
    history: History = field(default_factory=lambda: History(WINDOW))
    values: Mapping[Signal, float] = field(default_factory=dict)

    def measure(self, now: float) -> None:
        """One round of the operator."""
        self.history.add(Reading(now, self.pool.values()))
        self.history.forget_before(now)
        told = [PodTold("all", ready=True, history=self.history)]
        self.values = tier_signals(self.tier, told, (), now).values

    def look(self, now: float) -> None:
        """One look of the autoscaler."""
        pods = self.pool.pods
        wanted = self.autoscaler.decide(now, pods.current, pods.ready, self._metrics())
        if wanted != pods.current:
            pods.scale(wanted)

    def _metrics(self) -> Sequence[hpa.Metric]:
        return [
            (Level if metric.signal in OVER_THE_TIER else Share)(
                self.values.get(metric.signal), float(parse_quantity(metric.target))
            )
            for metric in self.scaling.metrics
        ]


class System:
    """The pools of a plan, wired as requests go through them."""

    def __init__(self, plan: Plan) -> None:
        self.clock = Clock()
        self.pools: dict[Tier, Controlled] = {}
        self._plan = plan
        if Tier.FUSED in plan.scaling:
            self._first = self._fused()
            self._picture_first = self._first
        else:
            decode = self._decode()
            self._first = self._prefill(decode)
            self._picture_first = self._encoder(self._first)

    def run(self, trips: Iterable[Trip], seconds: float) -> None:
        """Lets requests in at their time, for ``seconds``; they are written on as they go."""
        self._let_in(iter(trips))
        self._every(PERIOD, Controlled.measure)
        self._every(self._plan.sync_seconds, Controlled.look)
        self.clock.run(seconds)

    @property
    def inside(self) -> int:
        """Requests in any pool."""
        return sum(one.pool.inside for one in self.pools.values())

    @property
    def pods_seen(self) -> dict[Tier, PodsSeen]:
        """What each pool has cost so far."""
        return {
            tier: PodsSeen(one.pool.pods.pod_seconds, one.pool.pods.most)
            for tier, one in self.pools.items()
        }

    def _let_in(self, trips: Iterator[Trip]) -> None:
        trip = next(trips, None)
        if trip is not None:
            self.clock.at(trip.arrived, lambda: self._arrive(trip, trips))

    def _arrive(self, trip: Trip, others: Iterator[Trip]) -> None:
        (self._picture_first if trip.visual_tokens else self._first).join(trip)
        self._let_in(others)

    def _every(self, seconds: float, action: Callable[[Controlled, float], None]) -> None:
        for one in self.pools.values():
            action(one, self.clock.now)
        self.clock.at(self.clock.now + seconds, lambda: self._every(seconds, action))

    def _end(self, trip: Trip) -> None:
        trip.ended = self.clock.now

    def _pods(self, tier: Tier) -> Pods:
        return Pods(self.clock, self._plan.scaling[tier].least, self._plan.start_seconds)

    def _add(self, tier: Tier, pool: Pool) -> Pool:
        scaling = self._plan.scaling[tier]
        autoscaler = Autoscaler(scaling.least, scaling.most, down=self._plan.down)
        self.pools[tier] = Controlled(tier, pool, scaling, autoscaler)
        return pool

    def _fused(self) -> Pool:
        plan = self._plan
        pods = self._pods(Tier.FUSED)
        pool = Fused(self.clock, pods, plan.costs, plan.room, QUEUE_TOKENS, self._end)
        return self._add(Tier.FUSED, pool)

    def _decode(self) -> Pool:
        plan = self._plan
        pods = self._pods(Tier.DECODE)
        return self._add(Tier.DECODE, Decoders(self.clock, pods, plan.costs, plan.room, self._end))

    def _prefill(self, decode: Pool) -> Pool:
        def done(trip: Trip) -> None:
            trip.first = self.clock.now
            decode.join(trip)

        pool = Workers(
            self.clock,
            self._pods(Tier.PREFILL),
            Stage.PREFILL_QUEUE,
            works=Stage.PREFILL,
            seconds=self._plan.costs.prefill,
            tokens=lambda trip: trip.prompt_tokens,
            counter=Metric.INPUT_TOKENS,
            queue_tokens=QUEUE_TOKENS,
            done=done,
        )
        return self._add(Tier.PREFILL, pool)

    def _encoder(self, prefill: Pool) -> Pool:
        pool = Workers(
            self.clock,
            self._pods(Tier.ENCODER),
            Stage.ENCODE_QUEUE,
            works=Stage.ENCODE,
            seconds=self._plan.costs.encode,
            tokens=lambda trip: trip.visual_tokens,
            counter=Metric.VISUAL_TOKENS,
            queue_tokens=QUEUE_TOKENS,
            done=prefill.join,
        )
        return self._add(Tier.ENCODER, pool)
