"""Time to the first token when a part of the pictures has been asked about before."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from bench import client
from bench.samples import percentile
from bench.serving import WARM_SEEDS, Plan, start
from bench.systems import Server

SHARES: Final = (0, 50, 80, 100)  # percent
REQUESTS: Final = 20  # of each share
KNOWN: Final = range(3_000_000, 3_000_005)
FIRST_NEW: Final = 3_100_000
TOKENS: Final = 2

Times = dict[str, dict[int, list[float]]]  # by system and share


async def measure(plan: Plan, say: Callable[[str], None]) -> Times:
    """Seconds to the first token, one request at a time, each with a question of its own."""
    times: Times = defaultdict(lambda: defaultdict(list))
    async with contextlib.AsyncExitStack() as stack:
        systems = [one for one in await start(plan, stack, say) if isinstance(one, Server)]
        for system in systems:
            await client.load(system.api, range(WARM_SEEDS, WARM_SEEDS + 3), 1, TOKENS)
            await client.load(system.api, KNOWN, 1, TOKENS)
        asked = 0
        for share in SHARES:
            for repeated in _order(share):
                asked += 1
                seed = KNOWN[asked % len(KNOWN)] if repeated else FIRST_NEW + asked
                for system in systems:
                    question = f"what is in picture {asked}"
                    (sample,) = await client.load(system.api, [seed], 1, TOKENS, question)
                    times[system.name][share].append(sample.first)
            say(f"{share} % of {REQUESTS} pictures were known")
    return times


def summary(seconds: list[float]) -> tuple[float, float]:
    """Mean, which shares add up in, and P50."""
    return sum(seconds) / len(seconds), percentile(seconds, 50)


def _order(share: int) -> list[bool]:
    order = [index * 100 < share * REQUESTS for index in range(REQUESTS)]
    random.Random(share).shuffle(order)
    return order
