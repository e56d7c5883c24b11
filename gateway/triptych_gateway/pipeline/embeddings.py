"""A leased embedding for every picture of a request, from whichever encoder can give it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from triptych_contract.errors import (
    FingerprintMismatch,
    Overloaded,
    RetryableError,
    TransferCorrupted,
    Unavailable,
)
from triptych_contract.names import Count
from triptych_contract.v1.common_pb2 import Handle
from triptych_contract.v1.stages_pb2 import EncodeHeader, LeaseRequest

from triptych_gateway.deadlines import Deadline
from triptych_gateway.journal import Journal
from triptych_gateway.pipeline.attempts import Attempts
from triptych_gateway.pipeline.leases import Holdings
from triptych_gateway.pipeline.pictures import Pictures, PreparedPicture
from triptych_gateway.pipeline.turns import Turns
from triptych_gateway.tiers.calls import PodCalls
from triptych_gateway.tiers.choice import by_content
from triptych_gateway.tiers.fleet import Pod
from triptych_gateway.tiers.pools import Pools


@dataclass(frozen=True, slots=True)
class Wanted:
    """Embeddings that one request needs, and what it may cost to get them."""

    request_id: str
    fingerprint: str
    pictures: Sequence[PreparedPicture]
    deadline: Deadline
    attempts: Attempts
    holdings: Holdings
    verify: bool = False  # a receiver found one that was not as it was made


@dataclass(frozen=True, slots=True)
class _Job:
    """``count`` handles of one embedding."""

    wanted: Wanted
    key: bytes
    picture: PreparedPicture
    count: int
    journal: Journal = field(default_factory=Journal)


class Embeddings:
    """Asks encoders: first for what they hold, and only then with pixels."""

    def __init__(self, calls: PodCalls, pools: Pools, pictures: Pictures) -> None:
        self._calls = calls
        self._pools = pools
        self._pictures = pictures
        self._turns = Turns[tuple[str, bytes]]()

    async def lease(self, wanted: Wanted, pods: Sequence[Pod], journal: Journal) -> list[Handle]:
        """One handle per picture, in order; a picture that comes twice gets two.

        Raises:
            Unavailable: none of ``pods`` is up.
            Overloaded: all of them are.
            NonFinite, TooLarge, InvalidRequest, DeadlineExceeded.
        """
        keys = [picture.key(wanted.fingerprint) for picture in wanted.pictures]
        distinct = dict(zip(keys, wanted.pictures, strict=True))
        counts = Counter(keys)
        jobs = [_Job(wanted, key, picture, counts[key]) for key, picture in distinct.items()]
        tasks = [asyncio.create_task(self._from_any(job, pods)) for job in jobs]
        try:
            found = dict(zip(distinct, await asyncio.gather(*tasks), strict=True))
        finally:
            await _stop(tasks)
            journal.join(job.journal for job in jobs)
        return [found[key].pop() for key in keys]

    async def _from_any(self, job: _Job, pods: Sequence[Pod]) -> list[Handle]:
        """The handles from the first of ``pods`` that gives them, its own encoder first."""
        failed: set[str] = set()
        last: RetryableError = Unavailable("no encoder is up")
        while pod := by_content(job.key, pods, self._pools.work, failed):
            job.journal.asked(pod.tier, pod.address)
            try:
                peer = by_content(job.key, pods, {}, {*failed, pod.address})
                with self._pools.working(pod.address):
                    return await self._from(pod, job, peer)
            except (Unavailable, Overloaded, FingerprintMismatch, TransferCorrupted) as error:
                last = error
                failed.add(pod.address)
                self._pools.failed(pod.address, error)
                job.wanted.attempts.failed(pod.address, error)
        raise last

    async def _from(self, pod: Pod, job: _Job, peer: Pod | None) -> list[Handle]:
        """The handles from ``pod``, which gets the pixels only if it needs them: neither it nor
        ``peer``, to which the content belongs or belonged, has the embedding."""
        if handles := await self._held(pod, job, job.count, peer):
            return handles
        async with self._turns.of((pod.address, job.key)) as waited:
            if waited and (handles := await self._held(pod, job, job.count)):
                return handles
            first = await self._encoded(pod, job)
        if job.count == 1:
            return [first]
        others = await self._held(pod, job, job.count - 1)
        if not others:
            raise Unavailable(f"encoder {pod.address} dropped an embedding at once; try again")
        return [first, *others]

    async def _held(self, pod: Pod, job: _Job, count: int, peer: Pod | None = None) -> list[Handle]:
        """``count`` leases if the pod holds the embedding, is making it, or gets it from ``peer``;
        else none."""
        request = LeaseRequest(
            request_id=job.wanted.request_id,
            fingerprint=job.wanted.fingerprint,
            keys=[job.key] * count,
            verify=job.wanted.verify,
            peer=peer.address if peer else "",
        )
        response = await self._calls.lease(pod.address, request, job.wanted.deadline)
        handles = [job.wanted.holdings.add(one.handle) for one in response.results if not one.miss]
        if len(handles) < count:
            return []
        job.journal.count(Count.ENCODER_CACHE_HITS)
        return handles

    async def _encoded(self, pod: Pod, job: _Job) -> Handle:
        wanted = job.wanted
        processed = await self._pictures.tensors(job.picture, wanted.fingerprint, job.journal)
        header = EncodeHeader(
            request_id=wanted.request_id,
            fingerprint=wanted.fingerprint,
            key=job.key,
            grid=processed.layout.grid,
            visual_tokens=processed.layout.visual_tokens,
        )
        response = await self._calls.encode(pod.address, header, processed, wanted.deadline)
        job.journal.report(response.times)
        return wanted.holdings.add(response.handle)


async def _stop(tasks: Sequence[asyncio.Task[list[Handle]]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
