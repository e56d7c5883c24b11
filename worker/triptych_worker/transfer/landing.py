"""Where tensors of other processes arrive: an arena whose ranges are waited for in turn."""

from __future__ import annotations

import asyncio
from collections import deque

from triptych_contract.errors import TooLarge

from triptych_worker.transfer.arena import Arena


class Landing:
    """Bounds what arrives and is not yet used. Used on one event loop only."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._turns: deque[tuple[int, asyncio.Future[int]]] = deque()  # size, start to come

    async def reserve(self, size_bytes: int) -> int:
        """Offset of a range, as soon as those who asked before have theirs.

        Raises:
            TooLarge: no range will ever be that long.
        """
        if size_bytes > self.arena.size_bytes:
            raise TooLarge(
                f"a tensor of {size_bytes} bytes does not fit the {self.arena.size_bytes} bytes "
                "for tensors that arrive: raise transfer.landing_bytes"
            )
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._turns.append((size_bytes, turn))
        self._serve()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.arena.free(turn.result())
            turn.cancel()
            self._serve()  # those behind need not wait any longer
            raise

    def free(self, start: int) -> None:
        """Takes a range back.

        Raises:
            KeyError: none was handed out at ``start``.
        """
        self.arena.free(start)
        self._serve()

    def _serve(self) -> None:
        while self._turns:
            size_bytes, turn = self._turns[0]
            if not turn.done():
                start = self.arena.allocate(size_bytes)
                if start is None:
                    return
                turn.set_result(start)
            self._turns.popleft()
