"""The encode stage: admit -> plan -> forward -> publish, for pictures.

The event loop keeps the books (``EncodeQueue``); one thread runs the model, another copies and
hashes what it made, so that publishing one batch overlaps with encoding the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from triptych_contract.config import EncodeLimits
from triptych_contract.errors import (
    FingerprintMismatch,
    InvalidRequest,
    TooLarge,
    TriptychError,
    Unavailable,
)
from triptych_contract.names import Count, Metric, Stage

from triptych_worker.cores import Cores, alone
from triptych_worker.domain import (
    Encoded,
    EncodeInput,
    Handle,
    Load,
    Observer,
    StageTimes,
    TensorHolder,
    VisionModel,
)
from triptych_worker.stages.encode_queue import Bounds, EncodeQueue, Flight
from triptych_worker.stages.encode_work import EncodeWork, Made, Published, wrong_rows
from triptych_worker.stages.peer_embeddings import PeerEmbeddings

_log = logging.getLogger(__name__)

_REMEMBERED_KEYS: Final = 65536


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    answer: asyncio.Future[Encoded]
    joined: float
    joined_later: bool  # another request has begun this encode


_Flight = Flight[EncodeInput, _Waiter]


class PictureEncoder:
    """Implements ``domain.EncodeStage``. Methods are called on one event loop.

    Args:
        model: the vision part; only this stage's thread calls it.
        holder: where embeddings are published; this stage alone publishes embeddings there.
        fingerprint: of this encoder; requests for another are refused.
        limits: bounds of the queue and of a batch.
        observer: is told durations and counts.
        cores: shared with what else computes in this process.
        peers: takes over what other encoders hold; None where there are none.
        clock: seconds on a monotonic clock.
    """

    def __init__(
        self,
        model: VisionModel,
        holder: TensorHolder,
        fingerprint: str,
        limits: EncodeLimits,
        observer: Observer,
        *,
        cores: Cores,
        peers: PeerEmbeddings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._holder = holder
        self._work = EncodeWork(model, holder, fingerprint, observer=observer)
        self._cores = cores
        self._fingerprint = fingerprint
        self._peers = peers
        self._capacity = limits.holding_bytes
        self._observer = observer
        self._clock = clock
        self._queue: EncodeQueue[EncodeInput, _Waiter] = EncodeQueue(
            Bounds(
                batch_tokens=min(limits.batch_visual_tokens, model.pass_tokens),
                queue_tokens=limits.queue_visual_tokens,
                inflight_bytes=limits.inflight_bytes,
            )
        )
        # Keys published lately: only these are worth a look before encoding, so that a picture that
        # nobody had is one miss in the holder's statistics, not two.
        self._published: OrderedDict[bytes, None] = OrderedDict()
        self._admitting = True
        self._runner: asyncio.Task[None] | None = None
        self._publisher = ThreadPoolExecutor(1, "publish", alone)

    async def lease(
        self, keys: Sequence[bytes], fingerprint: str, *, verify: bool = False, peer: str = ""
    ) -> list[Handle | None]:
        """A handle or None for each key; see ``domain.EncodeStage``.

        A key whose encode fails is a miss: whoever sends its pixels gets the error.
        """
        self._admit(fingerprint)
        if verify:
            await self._verify(keys)
        handles: list[Handle | None] = [None] * len(keys)
        try:
            async with asyncio.TaskGroup() as group:
                for place, key in enumerate(keys):
                    group.create_task(self._lease_into(handles, place, key, peer))
        except BaseException:
            self._holder.release([handle.lease_id for handle in handles if handle])
            raise
        return handles

    async def encode(self, item: EncodeInput, fingerprint: str) -> Encoded:
        """A leased embedding of ``item``; see ``domain.EncodeStage``."""
        self._admit(fingerprint)
        flight = self._queue.find(item.key)
        if flight is not None:
            encoded = await self._land(flight, joined_later=True)
        elif (handle := self._held(item.key)) is not None:
            times = _times(0.0, 0.0, item.visual_tokens, cached=True)
            encoded = Encoded(handle, times, cached=True)
        else:
            return await self._land(self._take_off(item), joined_later=False)
        if encoded.handle.shape[0] != item.visual_tokens:
            self._holder.release([encoded.handle.lease_id])
            raise wrong_rows(encoded.handle.shape[0], item.visual_tokens)
        return encoded

    def load(self) -> Load:
        """What waits and what runs."""
        waiting = self._queue.waiting
        return Load(
            running=len(self._queue) - waiting,
            waiting=waiting,
            backlog_tokens=self._queue.waiting_tokens,
        )

    def close(self) -> None:
        """Ends the thread once it is idle; nothing can be encoded afterwards."""
        self._admitting = False
        self._publisher.shutdown(wait=False, cancel_futures=True)

    def _admit(self, fingerprint: str) -> None:
        if fingerprint != self._fingerprint:
            raise FingerprintMismatch(
                f"this encoder is {self._fingerprint}, the request is for {fingerprint}: use an "
                "encoder of that fingerprint"
            )
        if not self._admitting:
            raise Unavailable("this encoder has stopped: use another")

    def _held(self, key: bytes) -> Handle | None:
        return self._holder.lease(key, self._fingerprint) if key in self._published else None

    async def _verify(self, keys: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        for key in keys:
            sound = await loop.run_in_executor(
                self._publisher, self._holder.verify, key, self._fingerprint
            )
            if not sound:
                _log.error("an embedding in memory was not as it was made, and was dropped")

    async def _lease_into(
        self, handles: list[Handle | None], place: int, key: bytes, peer: str
    ) -> None:
        flight = self._queue.find(key)
        if flight is None:
            handles[place] = self._holder.lease(key, self._fingerprint)
            if handles[place] is None and peer and self._peers is not None:
                handles[place] = await self._taken_over(self._peers, key, peer)
            return
        try:
            handles[place] = (await self._land(flight, joined_later=True)).handle
        except TriptychError:
            handles[place] = None

    async def _taken_over(self, peers: PeerEmbeddings, key: bytes, peer: str) -> Handle | None:
        if not await peers.take_over(key, peer):
            return None
        self._remember(key)
        return self._holder.lease(key, self._fingerprint)

    def _take_off(self, item: EncodeInput) -> _Flight:
        if item.visual_tokens < 1:
            raise InvalidRequest("visual_tokens must be the number of embedding rows, at least 1")
        size = item.visual_tokens * self._model.width * self._model.dtype.itemsize
        if size > self._capacity:
            raise TooLarge(
                f"an embedding of {size} bytes does not fit the {self._capacity} bytes of this "
                "encoder (encode.cache_bytes): send a smaller picture"
            )
        pixels = sum(tensor.nbytes for tensor in item.tensors.values())
        flight: _Flight = Flight(item.key, item, item.visual_tokens, pixels, self._clock())
        self._queue.admit(flight)
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return flight

    async def _land(self, flight: _Flight, *, joined_later: bool) -> Encoded:
        """Waits for a flight as one of its waiters; leaving early ends only this wait."""
        answer: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(answer, self._clock(), joined_later)
        flight.waiters.append(waiter)
        try:
            return await answer
        except asyncio.CancelledError:
            self._queue.leave(flight, waiter)
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._holder.release([answer.result().handle.lease_id])
            raise

    async def _run(self) -> None:
        try:
            await self._encode_queued()
        finally:
            self._runner = None
            for flight in self._queue.clear():  # none, unless the threads were closed
                self._settle(flight, Unavailable("this encoder has stopped: use another"))

    async def _encode_queued(self) -> None:
        """Encodes until nothing waits and all is published."""
        publishing: asyncio.Task[None] | None = None
        try:
            while (batch := self._queue.start_batch(self._clock())) or publishing:
                made, seconds = await self._forward(batch) if batch else ([], 0.0)
                if publishing is not None:
                    await publishing
                publishing = (
                    asyncio.create_task(self._publish(batch, made, seconds)) if batch else None
                )
        finally:
            if publishing is not None:  # the threads were closed in the middle of it
                await asyncio.wait([publishing])

    async def _forward(self, batch: Sequence[_Flight]) -> tuple[list[Made], float]:
        began = self._clock()
        for flight in batch:
            self._observer.seconds(Stage.ENCODE_QUEUE, flight.started - flight.admitted)
        items = [flight.item for flight in batch]
        encoding = self._cores.submit(lambda _: self._work.encode(items))
        made = await asyncio.wrap_future(encoding)
        seconds = self._clock() - began
        self._queue.throughput.measured(sum(flight.tokens for flight in batch), seconds)
        return made, seconds

    async def _publish(
        self, batch: Sequence[_Flight], made: Sequence[Made], seconds: float
    ) -> None:
        loop = asyncio.get_running_loop()
        items = [flight.item for flight in batch]
        published = await loop.run_in_executor(
            self._publisher, self._work.publish, items, made, seconds
        )
        for flight, outcome in zip(batch, published, strict=True):
            self._queue.finish(flight)
            self._settle(flight, outcome)

    def _settle(self, flight: _Flight, outcome: Published) -> None:
        """Answers everybody who still waits, each with a lease of its own."""
        now = self._clock()
        # A cancelled waiter may not have run yet, so as to leave by itself.
        waiters = [waiter for waiter in flight.waiters if not waiter.answer.done()]
        if isinstance(outcome, TriptychError):
            for waiter in waiters:
                waiter.answer.set_exception(outcome)
            return
        self._remember(flight.key)
        self._observe(flight, now)
        for waiter in waiters[1:]:
            self._answer(flight, waiter, self._holder.lease(flight.key, self._fingerprint), now)
        if waiters:
            self._answer(flight, waiters[0], outcome, now)
        else:  # everybody has gone; the work is kept, the lease is not
            self._holder.release([outcome.lease_id])

    def _answer(self, flight: _Flight, waiter: _Waiter, handle: Handle | None, now: float) -> None:
        if handle is None:
            waiter.answer.set_exception(
                Unavailable("the embedding was dropped by a flush: ask again", retry_after=0.1)
            )
            return
        queued = max(0.0, flight.started - waiter.joined)
        encoding = now - max(flight.started, waiter.joined)
        times = _times(queued, encoding, flight.tokens, cached=waiter.joined_later)
        waiter.answer.set_result(Encoded(handle, times, waiter.joined_later))

    def _remember(self, key: bytes) -> None:
        self._published[key] = None
        self._published.move_to_end(key)
        if len(self._published) > _REMEMBERED_KEYS:
            self._published.popitem(last=False)

    def _observe(self, flight: _Flight, now: float) -> None:
        self._observer.seconds(Stage.ENCODE, now - flight.started)
        self._observer.add(Metric.IMAGES)
        self._observer.add(Metric.VISUAL_TOKENS, flight.tokens)


def _times(queued: float, encoding: float, tokens: int, *, cached: bool) -> StageTimes:
    return StageTimes(
        seconds={Stage.ENCODE_QUEUE: queued, Stage.ENCODE: encoding},
        counts={Count.VISUAL_TOKENS: tokens, Count.ENCODER_CACHE_HITS: int(cached)},
    )
