"""Which resources are looked at for their signals, and when."""

from __future__ import annotations

import asyncio
from typing import Any

from children_of import SHAPES, resource
from scaling_scene import ON_WAIT, Scene
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.controller.queue import KeyedQueue
from triptych_operator.controller.scaling import STATUS_SECONDS


async def test_every_resource_comes_due(scene: Scene) -> None:
    await scene.stands()
    due: KeyedQueue[Any] = KeyedQueue(first_retry=1.0, last_retry=1.0)
    running = asyncio.create_task(scene.scaler.run(due, 60.0))
    assert await asyncio.wait_for(due.get(), 30.0) == SHAPES
    running.cancel()


async def next_due(scene: Scene, seconds: float = 0.3) -> list[Any]:
    """What becomes due within ``seconds``, many periods of the scaler."""
    due: KeyedQueue[Any] = KeyedQueue(first_retry=1.0, last_retry=1.0)
    running = asyncio.create_task(scene.scaler.run(due, 0.05))
    await asyncio.sleep(seconds)
    running.cancel()
    return [await due.get() for _ in range(len(due))]


async def test_a_resource_is_left_alone_while_no_pod_tells_anything_and_nothing_changes(
    scene: Scene,
) -> None:
    await scene.stands(tiers__prefill__autoscaling=ON_WAIT)
    assert await scene.look() == []
    assert await next_due(scene) == []
    scene.set_encoders(3)
    await scene.desk.observe()
    assert await next_due(scene) == [SHAPES]
    await scene.look()
    assert await next_due(scene) == []
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 0.1}, {"a": 4.0})
    assert await next_due(scene) == [SHAPES]


async def test_what_was_told_is_taken_back_when_its_time_has_come(scene: Scene) -> None:
    await scene.stands(tiers__prefill__autoscaling=ON_WAIT)
    scene.measures(Tier.PREFILL, {Signal.QUEUE_WAIT: 9.0}, {"a": 4.0})
    await scene.look()
    assert scene.desk.status().limiting_tier is Tier.PREFILL
    scene.board.keep([])  # no pod is left, and their signals are
    await scene.look()
    assert await next_due(scene) == [SHAPES], "for a minute it waits for them to come back"
    assert await scene.look(later=STATUS_SECONDS) == ["PATCH MultimodalService shapes status"]
    await scene.look()
    assert scene.desk.status().limiting_tier is None
    assert await next_due(scene) == []


async def test_looks_at_many_resources_are_spread_over_the_period(scene: Scene) -> None:
    for number in range(100):
        resource(scene.desk.server, name=f"many-{number}")
    await scene.desk.observe()
    due: KeyedQueue[Any] = KeyedQueue(first_retry=1.0, last_retry=1.0)
    loop, together = asyncio.get_running_loop(), 0
    began = loop.time()
    running = asyncio.create_task(scene.scaler.run(due, 1.0))
    async with asyncio.timeout(60.0):
        for _ in range(100):
            await due.get()  # at once where one is due: what a machine that holds us up puts off
            together = max(together, 1 + len(due))  # comes piece by piece all the same
    running.cancel()
    assert loop.time() - began > 0.9
    assert together < 10
