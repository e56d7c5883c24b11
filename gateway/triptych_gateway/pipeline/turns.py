"""Taking turns by key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns(Generic[_Key]):
    """One at a time per key; keys that nobody uses take no memory."""

    def __init__(self) -> None:
        self._turns: dict[_Key, _Turn] = {}

    @asynccontextmanager
    async def of(self, key: _Key) -> AsyncIterator[bool]:
        """The turn of ``key``; tells whether somebody else had it before, so things may differ."""
        turn = self._turns.setdefault(key, _Turn())
        waited = turn.users > 0
        turn.users += 1
        try:
            async with turn.lock:
                yield waited
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]
