"""The processes that decode pictures: killed when slow, replaced when they crash."""

from __future__ import annotations

import asyncio
import multiprocessing
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Self, cast

from pebble import ProcessExpired, ProcessFuture, ProcessPool
from triptych_contract.errors import InvalidRequest

from triptych_gateway.media.decode import Pixels, decode, limit_memory
from triptych_gateway.media.formats import Format


class DecodePool:
    """Decodes pictures in child processes. Use as ``async with``."""

    def __init__(self, *, processes: int, seconds: float, max_pixels: int) -> None:
        self._seconds = seconds
        self._max_pixels = max_pixels
        self._pool = ProcessPool(
            max_workers=processes,
            initializer=limit_memory,
            initargs=(max_pixels,),
            context=multiprocessing.get_context("spawn"),
        )

    async def __aenter__(self) -> Self:
        """Starts the processes, so that the first request does not wait for them."""
        await asyncio.wrap_future(self._pool.schedule(_ready))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call] # the package annotates in parts
        await asyncio.to_thread(self._pool.join)

    async def decode(self, content: bytes, kind: Format) -> Pixels:
        """The pixels of one picture.

        Raises:
            InvalidRequest: it cannot be decoded, or not within the limits of time and memory.
        """
        future = cast(
            "ProcessFuture[Pixels | None]",
            self._pool.schedule(
                decode, args=[content, str(kind), self._max_pixels], timeout=self._seconds
            ),
        )
        try:
            pixels = await asyncio.wrap_future(future)
        except FutureTimeout as error:
            raise InvalidRequest(
                f"an image took longer than {self._seconds:g} seconds to decode"
            ) from error
        except (ProcessExpired, FutureCancelled) as error:
            raise InvalidRequest("an image could not be decoded") from error
        if pixels is None:
            raise InvalidRequest(f"an image is a damaged or truncated {kind} file")
        return pixels


def _ready() -> None:
    """Returns once a child has imported what it needs."""
