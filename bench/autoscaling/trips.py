"""Requests that are simulated, and what the stages take for them. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Trip:
    """One request on its way. Times are seconds; ``None`` until it has come so far."""

    arrived: float
    visual_tokens: int  # 0: text alone
    prompt_tokens: int  # visual ones included
    output_tokens: int
    first: float | None = None  # when its first token was there
    ended: float | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one pod, which has one core; ``scale`` makes the model larger as a whole."""

    encode_per_token: float
    prefill_per_token: float
    step: float  # of decoding one sequence, whose most part is reading the weights
    step_per_sequence: float  # more for each further one
    scale: float = 1.0

    def encode(self, trip: Trip) -> float:
        """Until the picture's embedding can be fetched."""
        return self.scale * self.encode_per_token * trip.visual_tokens

    def prefill(self, trip: Trip) -> float:
        """Until the first token."""
        return self.scale * self.prefill_per_token * trip.prompt_tokens

    def decode_step(self, sequences: float) -> float:
        """One token of each of ``sequences``."""
        return self.scale * (self.step + self.step_per_sequence * (max(1.0, sequences) - 1))


# docs/benchmarks.md, "Where the time goes", of the model of bench/model.py: 256 visual tokens in
# 1.056 core-seconds, 274 prompt tokens in 0.487, a step of 1 sequence in 45.8 ms and of 8 in 76.
MEASURED = Costs(
    encode_per_token=1.056 / 256,
    prefill_per_token=0.487 / 274,
    step=0.0458,
    step_per_sequence=(0.076 - 0.0458) / 7,
)


@dataclass(frozen=True, slots=True)
class Mix:
    """What is asked: the share of requests with a picture, and lengths in tokens."""

    name: str
    pictures: float
    visual_tokens: int
    text_tokens: int
    output_tokens: int

    def trip(self, arrived: float, chance: random.Random) -> Trip:
        """One request; lengths vary by half around their mean."""
        visual = self.visual_tokens if chance.random() < self.pictures else 0
        text = round(self.text_tokens * chance.uniform(0.5, 1.5))
        output = max(2, round(self.output_tokens * chance.uniform(0.5, 1.5)))
        return Trip(arrived, visual, visual + text, output)


@dataclass(frozen=True, slots=True)
class Day:
    """Arrivals of a bursty day.

    The rate follows a day's wave from ``low`` to ``high`` requests per second; on top of it bursts
    of ``burst`` times the rate come every ``burst_every`` seconds on average and last
    ``burst_seconds``. Within all that, arrivals are Poisson.
    """

    seconds: float
    low: float
    high: float
    burst: float = 2.5
    burst_every: float = 3600.0
    burst_seconds: float = 300.0

    def trips(self, mix: Mix, seed: int) -> Iterator[Trip]:
        """All requests in order of arrival; the same for the same seed."""
        chance = random.Random(seed)
        bursts = self._bursts(chance)
        most = self.high * self.burst
        now = 0.0
        while (now := now + chance.expovariate(most)) < self.seconds:
            if chance.random() * most < self.rate(now, bursts):  # thinned to the rate of the moment
                yield mix.trip(now, chance)

    def rate(self, now: float, bursts: list[float]) -> float:
        """Requests per second at one moment."""
        wave = 0.5 - 0.5 * math.cos(2 * math.pi * now / self.seconds)
        busy = any(start <= now < start + self.burst_seconds for start in bursts)
        return (self.low + (self.high - self.low) * wave) * (self.burst if busy else 1.0)

    def _bursts(self, chance: random.Random) -> list[float]:
        starts, now = [], 0.0
        while (now := now + chance.expovariate(1 / self.burst_every)) < self.seconds:
            starts.append(now)
        return starts
