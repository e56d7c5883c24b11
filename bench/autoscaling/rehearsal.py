"""The run on the real node, simulated: whether the simulator foretells what really happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from triptych_contract.names import Tier

from bench.autoscaling.hpa import DOWN, Rules
from bench.autoscaling.load import Outcome, Phase
from bench.autoscaling.system import Plan, Scaling, System
from bench.autoscaling.trips import Costs, Trip
from bench.autoscaling.verdict import Line, Stretch, line
from bench.autoscaling.watch import PERIOD_SECONDS, Reading, TierReading

# The built-in model on one core: 19 ms of encoding for 16 visual tokens, 138 ms for a prompt of
# 900, 2 ms for a token; and what a pod takes until it serves, on two busy cores.
SHAPES: Final = Costs(0.019 / 16, 0.138 / 900, 0.002, 0.0003)
START_SECONDS: Final = 20.0
SYNC_SECONDS: Final = 2.0  # as e2e/cluster has it


def rehearse(
    phases: Sequence[tuple[Phase, Tier | None]],
    scaling: dict[Tier, Scaling],
    down_seconds: float,
    trip: Callable[[str, float], Trip],
) -> list[Line]:
    """What each phase will come to; ``trip`` is a request of a phase's name at a time."""
    down = Rules(down_seconds, DOWN.policies)
    plan = Plan(
        "rehearsal", scaling, SHAPES,
        start_seconds=START_SECONDS, sync_seconds=SYNC_SECONDS, down=down,
    )  # fmt: skip
    system = System(plan)
    trips: list[tuple[str, Trip]] = []
    stretches: list[Stretch] = []
    start = 0.0
    for phase, grows in phases:
        trips += [(phase.name, trip(phase.name, start + at)) for at in _due(phase, trip)]
        stretches.append(Stretch(phase.name, start, start + phase.seconds, grows))
        start += phase.seconds
    readings: list[Reading] = []
    _read(system, readings)
    system.run([one for _, one in trips], start)
    outcomes = [
        Outcome(name, one.arrived, one.first - one.arrived)
        for name, one in trips
        if one.first is not None
    ]
    return [line(one, readings, outcomes) for one in stretches]


def _due(phase: Phase, trip: Callable[[str, float], Trip]) -> list[float]:
    """When requests leave, from the start of the phase. Those that follow each other do so as fast
    as one pod would answer them all."""
    if not phase.at_once:
        return [index / phase.rate for index in range(int(phase.rate * phase.seconds))]
    each = trip(phase.name, 0.0).output_tokens * SHAPES.decode_step(phase.at_once)
    return [
        round_ * each for round_ in range(int(phase.seconds / each)) for _ in range(phase.at_once)
    ]


def _read(system: System, readings: list[Reading]) -> None:
    tiers = {
        tier: TierReading(one.pool.pods.current, one.pool.pods.ready, None)
        for tier, one in system.pools.items()
    }
    readings.append(Reading(system.clock.now, tiers))
    system.clock.at(system.clock.now + PERIOD_SECONDS, lambda: _read(system, readings))
