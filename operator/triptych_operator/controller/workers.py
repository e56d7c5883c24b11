"""Workers that take keys from the queue and reconcile them, each key apart from all others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from prometheus_client import Gauge, Histogram
from triptych_contract.errors import TriptychError

from triptych_operator.controller.queue import KeyedQueue
from triptych_operator.observed.store import ServiceKey

_logger = logging.getLogger(__name__)

SECONDS: Final = Histogram(
    "triptych_operator_reconcile_seconds",
    "Time of one look at a resource",
    ["queue", "outcome"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
DUE: Final = Gauge(
    "triptych_operator_queue_length", "Resources that wait to be looked at", ["queue"]
)


Task = Callable[[ServiceKey], Awaitable[None]]


async def work(
    queue: KeyedQueue[ServiceKey], task: Task, limit: float, name: str = "reconcile"
) -> NoReturn:
    """Does ``task`` for key after key.

    Args:
        limit: bounds one of them, in seconds.
        name: of the queue, in metrics.
    """
    while True:
        key = await queue.get()
        DUE.labels(name).set(len(queue))
        began = time.perf_counter()
        outcome = await _one(queue, task, key, limit)
        SECONDS.labels(name, outcome).observe(time.perf_counter() - began)
        await asyncio.sleep(0)  # looks that wait for nothing would hold up everything in one piece


async def _one(queue: KeyedQueue[ServiceKey], task: Task, key: ServiceKey, limit: float) -> str:
    name = f"{key.namespace}/{key.name}"
    try:
        async with asyncio.timeout(limit):
            await task(key)
    except TriptychError as refused:
        delay = queue.failed(key, at_least=refused.retry_after)
        _logger.warning("%s: %s; again in %.1f s", name, refused.message, delay)
        return "refused"
    except TimeoutError:
        delay = queue.failed(key)
        _logger.error("%s: not done in %.0f s; again in %.1f s", name, limit, delay)  # noqa: TRY400 - a bare timeout has no story to tell
        return "timeout"
    except Exception:  # a fault of ours with one resource must not hold up the others
        delay = queue.failed(key)
        _logger.exception("%s: unexpected; again in %.1f s", name, delay)
        return "error"
    queue.done(key)
    return "ok"
