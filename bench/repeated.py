"""A picture that was asked about before: how much sooner the first token comes.

Each picture is asked about cold, then with another question (only the picture can be reused), then
with that question once more (everything could be). One request at a time; the systems take turns.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from bench import client
from bench.samples import percentile
from bench.serving import WARM_SEEDS, Plan, start
from bench.systems import Server
from bench.tables import milliseconds, ratio, table

PICTURES: Final = 12
FIRST_SEED: Final = 2_000_000
QUESTIONS: Final = (client.QUESTION, "which colours are there", "which colours are there")
TOKENS: Final = 2

Times = dict[str, tuple[list[float], ...]]


async def measure(plan: Plan, say: Callable[[str], None]) -> Times:
    """Seconds to the first token by system: cold, another question, the same question."""
    times: Times = defaultdict(lambda: tuple([] for _ in QUESTIONS))
    async with contextlib.AsyncExitStack() as stack:
        systems = [one for one in await start(plan, stack, say) if isinstance(one, Server)]
        for system in systems:
            await client.load(system.api, range(WARM_SEEDS, WARM_SEEDS + 3), 1, TOKENS)
        for seed in range(FIRST_SEED, FIRST_SEED + PICTURES):
            for system in systems:
                for question, column in zip(QUESTIONS, times[system.name], strict=True):
                    (sample,) = await client.load(system.api, [seed], 1, TOKENS, question)
                    column.append(sample.first)
        say(f"asked {len(QUESTIONS)} times about each of {PICTURES} pictures")
    return times


def report(times: Times) -> str:
    """Medians, and the ratio to the first time."""
    rows = []
    for name, columns in times.items():
        cold, other, same = (percentile(column, 50) for column in columns)
        rows.append(
            [
                name,
                milliseconds(cold),
                milliseconds(other),
                milliseconds(same),
                ratio(cold, other),
                ratio(cold, same),
            ]
        )
    head = [
        "system", "TTFT cold ms", "another question ms", "the same question ms",
        "sooner by picture", "sooner by question",
    ]  # fmt: skip
    return table(head, rows)
