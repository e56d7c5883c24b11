"""Doing a thing once when several ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class SingleFlight(Generic[_Key, _Value]):
    """The first to ask does the work; the others wait. Who leaves does not take the work away from
    those that stay; when all have left, it is cancelled."""

    def __init__(self) -> None:
        self._tasks: dict[_Key, asyncio.Task[_Value]] = {}
        self._waiting: dict[_Key, int] = {}

    async def run(self, key: _Key, work: Callable[[], Awaitable[_Value]]) -> _Value:
        """The result of ``work``, or of the same work that is under way."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(_awaited(work))
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            return await asyncio.shield(task)
        finally:
            self._leave(key, task)

    def _leave(self, key: _Key, task: asyncio.Task[_Value]) -> None:
        if self._tasks.get(key) is not task:
            return
        self._waiting[key] -= 1
        if not self._waiting[key] and not task.done():
            self._forget(key, task)
            task.cancel()

    def _forget(self, key: _Key, task: asyncio.Task[_Value]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
            del self._waiting[key]
        if task.done() and not task.cancelled():
            task.exception()  # whoever waited has it; with nobody left, nobody needs it


async def _awaited(work: Callable[[], Awaitable[_Value]]) -> _Value:
    return await work()
