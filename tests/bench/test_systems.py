"""What the clock of a measured load sees."""

import asyncio
import time
from collections.abc import Sequence
from typing import cast

import pytest

from bench import client
from bench.client import Api
from bench.processes import Child
from bench.systems import Server

MAKING_SECONDS = 0.3


class Idle:
    """A process that takes nothing."""

    def cpu_seconds(self) -> float:
        return 1.0


def test_making_pictures_is_not_time_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def bodies(api: Api, seeds: Sequence[int], tokens: int) -> list[tuple[int, bytes]]:
        time.sleep(MAKING_SECONDS)
        return [(seed, b"{}") for seed in seeds]

    async def send(
        api: Api, requests: Sequence[tuple[int, bytes]], concurrency: int, tokens: int
    ) -> list[object]:
        assert requests == [(3, b"{}"), (4, b"{}")]
        return []

    monkeypatch.setattr(client, "bodies", bodies)
    monkeypatch.setattr(client, "send", send)
    server = Server("one", cast("Child", Idle()), Api("http://nowhere", "bench"))
    load = asyncio.run(server.load([3, 4], 2, 8))
    assert load.seconds < MAKING_SECONDS
