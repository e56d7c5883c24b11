"""Faults of the API server's answers. A proxy asks the one that it is given about every call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from control_plane.faults.calls import Answer, Call, refused


class Answers:
    """No fault: every call goes to the server."""

    async def instead(self, call: Call) -> Answer | None:
        """What the client gets without the server; ``None`` when the server is to answer."""
        del call
        return None


class Refuse(Answers):
    """Refuses every call, watches too, as an overloaded or broken server does."""

    def __init__(self, status: int, reason: str, *, retry_after: int = 0) -> None:
        self._answer = refused(status, reason, retry_after=retry_after)

    async def instead(self, call: Call) -> Answer | None:
        del call
        return self._answer


class Slow(Answers):
    """Every call but watches takes ``seconds`` longer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def instead(self, call: Call) -> Answer | None:
        if not call.watches:
            await asyncio.sleep(self._seconds)
        return None


class BlackHole(Answers):
    """No call is answered, nor reaches the server, until it is lifted."""

    def __init__(self) -> None:
        self._lifted = asyncio.Event()

    def lift(self) -> None:
        """Lets everything that waits go on, as a network does that comes back."""
        self._lifted.set()

    async def instead(self, call: Call) -> Answer | None:
        del call
        await self._lifted.wait()
        return None


class OldLists(Answers):
    """Lists are answered from ``recorded``, as by a server that lags: what comes after them in a
    watch, the true server tells."""

    def __init__(self, recorded: Mapping[str, Answer]) -> None:
        self._recorded = dict(recorded)
        self.served = 0

    async def instead(self, call: Call) -> Answer | None:
        old = self._recorded.get(list_key(call)) if call.lists else None
        self.served += old is not None
        return old


def list_key(call: Call) -> str:
    """Under which an answer to a list is recorded: pages and forms of a list are lists apart."""
    query = "&".join(f"{key}={value}" for key, value in sorted(call.query.items()))
    return f"{call.path}?{query} {call.accept}"
