"""Where a request's embeddings come from, also when no encoder is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from prometheus_client import Gauge
from triptych_contract.errors import Overloaded, RetryableError, Unavailable
from triptych_contract.names import Tier, Topology
from triptych_contract.v1.common_pb2 import Handle

from triptych_gateway.deadlines import Deadline
from triptych_gateway.journal import Journal
from triptych_gateway.pipeline.embeddings import Embeddings, Wanted
from triptych_gateway.tiers.choice import by_content
from triptych_gateway.tiers.fleet import Pod
from triptych_gateway.tiers.pools import Pools

_POLL_SECONDS: Final = 0.5
Policy = Literal["EncodeInline", "Queue", "RejectMultimodal"]


class EncoderLoss:
    """Leases embeddings from encoders and, when none is up, does what the service is set to.

    ``missing`` counts the requests that no encoder is up for now: an operator that keeps none while
    no picture comes takes it for the sign to start one.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        pools: Pools,
        topology: Topology,
        *,
        policy: Policy,
        queue_seconds: float,
        missing: Gauge,
    ) -> None:
        self._embeddings = embeddings
        self._pools = pools
        self._missing = missing
        self._split = Tier.ENCODER in topology.tiers
        self._policy = policy
        self._queue_seconds = queue_seconds

    async def fingerprint(self, deadline: Deadline) -> str:
        """Of the encoder that will be asked.

        Raises:
            Unavailable: none is up, nor came up in the time that the policy gives.
        """
        waiting = self._patience(deadline)
        while not self._usable():
            await self._wait(waiting, Unavailable("no encoder is up", retry_after=5.0))
        return self._pools.route.fingerprint

    async def embeddings(self, wanted: Wanted, journal: Journal) -> list[Handle]:
        """A handle per picture.

        Raises:
            Unavailable: no encoder is up, and the policy knows no other way.
            Overloaded: all encoders are.
        """
        waiting = self._patience(wanted.deadline)
        while True:
            try:
                return await self._lease(wanted, journal)
            except Unavailable as error:
                if wanted.attempts.exhausted:
                    raise
                await self._wait(waiting, error)

    async def _lease(self, wanted: Wanted, journal: Journal) -> list[Handle]:
        route = self._pools.route
        if not self._split:
            return await self._on_one(wanted, route.encoders, journal)
        try:
            return await self._embeddings.lease(wanted, route.encoders, journal)
        except Unavailable:
            if wanted.attempts.exhausted or not (self._policy == "EncodeInline" and route.inline):
                raise
            with self._missing.track_inprogress():
                return await self._on_one(wanted, route.inline, journal)

    async def _on_one(self, wanted: Wanted, pods: Sequence[Pod], journal: Journal) -> list[Handle]:
        """All embeddings on one language pod, which then needs no transfer."""
        key = wanted.pictures[0].key(wanted.fingerprint)
        failed: set[str] = set()
        last: RetryableError = Unavailable("no pod that can encode is up", retry_after=5.0)
        while pod := by_content(key, pods, self._pools.work, failed):
            try:
                return await self._embeddings.lease(wanted, [pod], journal)
            except (Unavailable, Overloaded) as error:
                if wanted.attempts.exhausted:
                    raise
                last = error
                failed.add(pod.address)
        raise last

    def _usable(self) -> bool:
        route = self._pools.route
        return bool(route.encoders or (self._policy == "EncodeInline" and route.inline))

    def _patience(self, deadline: Deadline) -> Deadline:
        if self._policy != "Queue":
            return Deadline.after(0)
        return Deadline.after(deadline.remaining(self._queue_seconds))

    async def _wait(self, waiting: Deadline, error: Unavailable) -> None:
        """Until the pods have changed.

        Raises:
            Unavailable: ``error``, once patience is at its end.
        """
        if waiting.passed:
            raise Unavailable(
                f"{error.message}; requests without images still work", retry_after=5.0
            ) from error
        with self._missing.track_inprogress():
            await self._pools.changed(_POLL_SECONDS)
