"""What the gateway and the wires take: a request's wall time at the client less what its stages
report, and what the gateway's own stages (picture to pixels, pixels to tensors) take besides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from triptych_contract.names import Stage

from bench import client
from bench.samples import Sample, percentile
from bench.serving import WARM_SEEDS, Plan, start
from bench.systems import Server
from bench.tables import milliseconds, table

REQUESTS: Final = 24
FIRST_SEED: Final = 3_000_000
TOKENS: Final = 8
TARGET_SECONDS: Final = 0.015
IN_GATEWAY: Final = (Stage.MEDIA_FETCH, Stage.MEDIA_DECODE, Stage.PROCESSOR)


async def measure(plan: Plan, say: Callable[[str], None]) -> dict[str, list[Sample]]:
    """Samples with stage times of each of our topologies in the plan, one request at a time."""
    samples: dict[str, list[Sample]] = {}
    async with contextlib.AsyncExitStack() as stack:
        for system in await start(plan, stack, say):
            if not isinstance(system, Server):
                continue
            api = replace(system.api, headers={"x-triptych-times": "1"})
            await client.load(api, range(WARM_SEEDS, WARM_SEEDS + 3), 1, TOKENS)
            seeds = range(FIRST_SEED, FIRST_SEED + REQUESTS)
            samples[system.name] = await client.load(api, seeds, 1, TOKENS)
            say(f"{system.name}: {REQUESTS} requests")
    return samples


def report(samples: dict[str, list[Sample]]) -> str:
    """Medians by stage and of the rest."""
    names = list(samples)
    stages = [stage for stage in Stage if any(stage in s.stages for s in samples[names[0]])]
    rows = [
        [stage, *(milliseconds(_median(samples[name], [stage])) for name in names)]
        for stage in stages
    ]
    overheads = [percentile([overhead(s) for s in samples[name]], 50) for name in names]
    rows += [
        ["**overhead: wall less all stages**", *(milliseconds(value) for value in overheads)],
        [
            "the same with the gateway's own stages",
            *(
                milliseconds(
                    percentile([overhead(s) + _sum(s, IN_GATEWAY) for s in samples[name]], 50)
                )
                for name in names
            ),
        ],
        [
            f"target: at most {milliseconds(TARGET_SECONDS)} ms",
            *("met" if value <= TARGET_SECONDS else "missed" for value in overheads),
        ],
    ]
    return table(["P50, ms", *names], rows)


def overhead(sample: Sample) -> float:
    """Seconds of the answer that no stage accounts for."""
    return sample.total - sum(sample.stages.values())


def _median(samples: Sequence[Sample], stages: Sequence[str]) -> float:
    return percentile([_sum(sample, stages) for sample in samples], 50)


def _sum(sample: Sample, stages: Sequence[str]) -> float:
    return sum(sample.stages.get(stage, 0.0) for stage in stages)
