"""A bound, in bytes, on what all requests hold at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from triptych_contract.errors import Overloaded, TooLarge


class ByteBudget:
    """Hands out bytes in the order in which they were asked for.

    ``hold`` waits; ``grow`` does not, for callers that hold some already and would deadlock.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """Bytes that are handed out."""
        return self._used

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Holds ``amount`` bytes inside the ``async with``, once they are free.

        Raises:
            TooLarge: more than the whole budget.
        """
        await self._acquire(amount)
        try:
            yield
        finally:
            self.give_back(amount)

    def grow(self, amount: int) -> None:
        """Takes ``amount`` bytes now.

        Raises:
            Overloaded: they are not free.
        """
        if self._used + amount > self._capacity:
            raise Overloaded("too many large requests at once; try again later", retry_after=1.0)
        self._used += amount

    def give_back(self, amount: int) -> None:
        """Frees ``amount`` bytes that ``grow`` took."""
        self._used -= amount
        self._admit()

    async def _acquire(self, amount: int) -> None:
        if amount > self._capacity:
            raise TooLarge(f"an image needs {amount} bytes decoded; the limit is {self._capacity}")
        if not self._waiting and self._used + amount <= self._capacity:
            self._used += amount
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(amount)
            else:
                self._waiting.remove((amount, turn))
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._used + self._waiting[0][0] <= self._capacity:
            amount, turn = self._waiting.popleft()
            self._used += amount
            turn.set_result(None)
