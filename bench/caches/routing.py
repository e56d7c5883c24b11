"""How often an encoder has a picture already, by how pictures are spread over encoders. Pure.

A simulation of many requests, with the gateway's own choice of the encoder and caches that forget
what was used longest ago.
"""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from blake3 import blake3
from triptych_contract.names import Tier
from triptych_gateway.tiers.choice import by_content
from triptych_gateway.tiers.fleet import Pod


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests for pictures of which few are asked for often: by Zipf's law."""

    pictures: int = 4000
    requests: int = 40_000
    exponent: float = 0.9
    in_flight: int = 8
    seed: int = 6

    def keys(self) -> Iterator[bytes]:
        """The picture of each request."""
        draw = random.Random(self.seed)
        weights = [1 / rank**self.exponent for rank in range(1, self.pictures + 1)]
        cumulative = list(itertools.accumulate(weights))
        names = [blake3(str(number).encode()).digest() for number in range(self.pictures)]
        for _ in range(self.requests):
            yield draw.choices(names, cum_weights=cumulative)[0]


@dataclass(slots=True)
class Encoder:
    """A cache of ``capacity`` pictures."""

    capacity: int
    held: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def has(self, key: bytes) -> bool:
        """Whether the picture is here; it is afterwards."""
        hit = key in self.held
        self.held[key] = None
        self.held.move_to_end(key)
        if len(self.held) > self.capacity:
            self.held.popitem(last=False)
        return hit


@dataclass(slots=True)
class Outcome:
    """Counts of requests."""

    requests: int = 0
    here: int = 0  # the encoder that was asked had it
    taken_over: int = 0  # it had not, and the one that it belongs to had

    @property
    def here_share(self) -> float:
        """Of all requests."""
        return self.here / self.requests

    @property
    def encoded_share(self) -> float:
        """Of all requests, those that had to be encoded."""
        return 1 - (self.here + self.taken_over) / self.requests


Choose = Callable[[bytes, Sequence[Pod], dict[str, int]], Pod | None]


def content(key: bytes, pods: Sequence[Pod], work: dict[str, int]) -> Pod | None:
    """As the gateway chooses."""
    return by_content(key, pods, work)


def round_robin() -> Choose:
    """One pod after the other."""
    turn = itertools.count()
    return lambda _, pods, __: pods[next(turn) % len(pods)]


def simulated(traffic: Traffic, encoders: Sequence[int], capacity: int, choose: Choose) -> Outcome:
    """What becomes of ``traffic``, the first half of which only warms the caches.

    Args:
        traffic: all requests.
        encoders: how many there are, for equal parts of the second half.
        capacity: pictures in one encoder's cache.
        choose: who is asked.
    """
    held: dict[str, Encoder] = {}
    running: OrderedDict[int, str] = OrderedDict()
    outcome = Outcome()
    warm = traffic.requests // 2
    for number, key in enumerate(traffic.keys()):
        part = max(0, number - warm) * len(encoders) // (traffic.requests - warm)
        pods = [Pod(Tier.ENCODER, f"10.0.0.{index}:50051") for index in range(encoders[part])]
        work = {pod.address: 0 for pod in pods}
        for address in running.values():
            work[address] = work.get(address, 0) + 1
        pod = choose(key, pods, work)
        if pod is None:
            raise ValueError("an encoder is needed")
        here = held.setdefault(pod.address, Encoder(capacity)).has(key)
        peer = by_content(key, pods, {}, {pod.address})
        there = not here and peer is not None and key in held.get(peer.address, Encoder(0)).held
        if number >= warm:
            outcome.requests += 1
            outcome.here += here
            outcome.taken_over += there
        running[number] = pod.address
        if len(running) > traffic.in_flight:
            running.popitem(last=False)
    return outcome
