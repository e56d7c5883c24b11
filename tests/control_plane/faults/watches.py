"""Faults of watches. A proxy hands the one that it is given every event of every open watch."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Final

Send = Callable[[bytes], Awaitable[None]]  # hands one line to the client

GONE: Final = 410


def error(status: int, reason: str) -> bytes:
    """The event by which a server tells that a watch cannot go on."""
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
    told |= {"reason": reason, "message": f"{reason}, says the test"}
    return json.dumps({"type": "ERROR", "object": told}).encode() + b"\n"


class StreamEnded(Exception):
    """The watch ends here for the client."""


class Watches:
    """No fault: every event is handed on as it comes.

    One object serves all streams; ``plural`` tells which kind an event is of, and the events of
    one stream are relayed one after another.
    """

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        """Hands ``line`` on, or not, or something else.

        Raises:
            StreamEnded: the client is to see the end of the stream.
        """
        del plural
        await send(line)


class Drop(Watches):
    """Events and bookmarks are lost, of ``plurals`` alone if given."""

    def __init__(self, *plurals: str) -> None:
        self._plurals = plurals
        self.dropped = 0

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        if self._plurals and plural not in self._plurals:
            await send(line)
        else:
            self.dropped += 1


class Delay(Watches):
    """Events come ``seconds`` later, in order."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        await asyncio.sleep(self._seconds)
        await send(line)


class Duplicate(Watches):
    """Every event comes twice."""

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        await send(line)
        await send(line)


class ReorderKinds(Watches):
    """Events of one kind overtake those of others: each waits for up to ``seconds``, at random."""

    def __init__(self, seconds: float, seed: int) -> None:
        self._seconds = seconds
        self._random = random.Random(seed)

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        await asyncio.sleep(self._random.uniform(0, self._seconds))
        await send(line)


class OldVersions(Watches):
    """After each version of an object, the one before comes once more."""

    def __init__(self) -> None:
        self._before: dict[str, bytes] = {}
        self.replayed = 0

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        await send(line)
        event = json.loads(line)
        uid = event["object"].get("metadata", {}).get("uid", "")
        if event["type"] not in ("ADDED", "MODIFIED") or not uid:
            return
        before = self._before.get(uid)
        self._before[uid] = line
        if before is not None:
            self.replayed += 1
            await send(before)


class End(Watches):
    """The next event of each stream ends it, as an API server does after its time-out."""

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        raise StreamEnded


class Fail(Watches):
    """Instead of the next event of each stream comes an error, after which it ends."""

    def __init__(self, status: int, reason: str) -> None:
        self._line = error(status, reason)
        self.failed = 0

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        self.failed += 1
        await send(self._line)
        raise StreamEnded


class Silent(Watches):
    """From the next event on a stream is silent for ever, but stays open."""

    def __init__(self) -> None:
        self.silenced = 0

    async def relay(self, plural: str, line: bytes, send: Send) -> None:
        self.silenced += 1
        await asyncio.Event().wait()
