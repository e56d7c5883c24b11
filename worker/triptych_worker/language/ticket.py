"""The event loop's end of one sequence: what the engine has said about it so far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from triptych_contract.errors import TriptychError

from triptych_worker.domain import TokenEvent


@dataclass(frozen=True, slots=True)
class Reserved:
    """The sequence has its range of the pool since ``at``."""

    kv_start: int
    at: float


@dataclass(frozen=True, slots=True)
class Output:
    """A token, sampled ``at``; the sequence's first step began at ``started``."""

    event: TokenEvent
    at: float
    started: float


Message = Reserved | Output | TriptychError


class Ticket:
    """Messages of one sequence, at most one per token of its answer. Times are monotonic."""

    def __init__(self, number: int, opened: float) -> None:
        self.number = number
        self.queued = opened
        self._reserved: asyncio.Future[Reserved] = asyncio.get_running_loop().create_future()
        self._outputs: asyncio.Queue[Output | TriptychError] = asyncio.Queue()

    def put(self, message: Message) -> None:
        """Takes what the engine says."""
        if not isinstance(message, Reserved):
            self._outputs.put_nowait(message)
        if self._reserved.done():  # its waiter may have been cancelled
            return
        if isinstance(message, Reserved):
            self._reserved.set_result(message)
        elif isinstance(message, TriptychError):
            self._reserved.set_exception(message)
            self._reserved.exception()  # it is read from the outputs as well: not unobserved

    async def reserved(self) -> Reserved:
        """Waits for the range.

        Raises:
            TriptychError: the sequence ended without one.
        """
        return await self._reserved

    async def next(self) -> Output:
        """The next token; after one with a finish reason there is none.

        Raises:
            TriptychError: the sequence ended with an error.
        """
        message = await self._outputs.get()
        if isinstance(message, TriptychError):
            raise message
        return message
