"""Tokens for a prepared request: from a fused pod, or from a prefill and then a decode.

What goes wrong before the client has seen a token is tried again elsewhere, with handles made
anew. Sampling depends on logits, parameters and seed alone, so a second prefill gives the same
first token, and a decode may fail even after the client has seen that one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from triptych_contract.errors import (
    FingerprintMismatch,
    LeaseExpired,
    Overloaded,
    RetryableError,
    TransferCorrupted,
    TriptychError,
    Unavailable,
)
from triptych_contract.names import Tier, Topology
from triptych_contract.v1.common_pb2 import Handle, TokenEvent
from triptych_contract.v1.stages_pb2 import DecodeRequest, PrefillResponse

from triptych_gateway.deadlines import Deadline
from triptych_gateway.journal import Journal
from triptych_gateway.pipeline.attempts import Attempts
from triptych_gateway.pipeline.embeddings import Wanted
from triptych_gateway.pipeline.encoder_loss import EncoderLoss
from triptych_gateway.pipeline.leases import Holdings, Releases
from triptych_gateway.pipeline.requests import Prepared
from triptych_gateway.tiers.calls import PodCalls, PodLost
from triptych_gateway.tiers.choice import least_busy
from triptych_gateway.tiers.fleet import Pod, Route
from triptych_gateway.tiers.pools import Pools

_MOST_TRIES: Final = 4
_RETRIED: Final = (Unavailable, Overloaded, LeaseExpired, FingerprintMismatch, TransferCorrupted)


@dataclass(slots=True)
class _Progress:
    """How far one request has come, over all its tries."""

    prepared: Prepared
    deadline: Deadline
    journal: Journal
    attempts: Attempts = field(default_factory=Attempts)
    failed: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)  # said once that they, or a peer, are unavailable
    overloaded: Overloaded | None = None
    exhausted: bool = False  # no pod is left to try
    expired: int = 0
    corrupted: bool = False  # a receiver found a tensor that was not as it was made
    first: int | None = None  # token id that the client has seen
    seen: int = 0


class Generation:
    """Finds pods for a request and streams what they answer."""

    def __init__(
        self,
        calls: PodCalls,
        pools: Pools,
        encoder_loss: EncoderLoss,
        releases: Releases,
        topology: Topology,
    ) -> None:
        self._calls = calls
        self._pools = pools
        self._encoder_loss = encoder_loss
        self._releases = releases
        self._split = Tier.PREFILL in topology.tiers

    async def stream(
        self, prepared: Prepared, deadline: Deadline, journal: Journal
    ) -> AsyncGenerator[TokenEvent, None]:
        """All tokens of the answer. Closing the generator frees everything on every tier.

        Raises:
            Unavailable: a tier is down, or pods went away again and again.
            Overloaded, DeadlineExceeded, and what the stages find wrong with the request.
        """
        progress = _Progress(prepared, deadline, journal)
        for tries_left in reversed(range(_MOST_TRIES)):
            try:
                async with aclosing(self._attempt(progress)) as events:
                    async for event in events:
                        progress.seen += 1
                        yield event
            except _RETRIED as error:
                if not tries_left or not _may_retry(progress, error):
                    raise
            else:
                return

    async def _attempt(self, progress: _Progress) -> AsyncGenerator[TokenEvent, None]:
        async with self._releases.holding() as holdings:
            route = self._pools.route
            handles = await self._embeddings(progress, holdings)
            steps = self._split_steps if self._split else self._fused_steps
            async with aclosing(steps(progress, route, handles, holdings)) as events:
                async for event in events:
                    yield event

    async def _embeddings(self, progress: _Progress, holdings: Holdings) -> list[Handle]:
        prepared = progress.prepared
        if not prepared.pictures:
            return []
        wanted = Wanted(
            request_id=prepared.request_id,
            fingerprint=self._pools.route.fingerprint or prepared.fingerprint,
            pictures=prepared.pictures,
            deadline=progress.deadline,
            attempts=progress.attempts,
            holdings=holdings,
            verify=progress.corrupted,
        )
        try:
            return await self._encoder_loss.embeddings(wanted, progress.journal)
        except RetryableError:
            progress.exhausted = True  # every encoder was asked
            raise

    def _fused_steps(
        self, progress: _Progress, route: Route, handles: Sequence[Handle], holdings: Holdings
    ) -> AsyncGenerator[TokenEvent, None]:
        pod = self._choose(Tier.FUSED, route.fused, progress, handles)
        request = progress.prepared.generate_request(
            _fingerprint_of(handles), pod.model_digest, handles
        )
        tokens = self._calls.generate(pod.address, request, progress.deadline)
        return self._passed_on(progress, pod, handles, holdings, tokens)

    async def _split_steps(
        self, progress: _Progress, route: Route, handles: Sequence[Handle], holdings: Holdings
    ) -> AsyncGenerator[TokenEvent, None]:
        answer = await self._prefilled(progress, route, handles)
        holdings.used()
        if answer.HasField("kv"):
            holdings.add(answer.kv)
        _report(progress.journal, answer.first)
        if progress.first is None:
            progress.first = answer.first.token_id
            yield answer.first
        elif progress.first != answer.first.token_id:
            raise Unavailable("the answer could not be continued on another pod; ask again")
        if answer.HasField("kv"):
            async with aclosing(self._decoded(progress, route, answer, holdings)) as events:
                async for event in events:
                    yield event

    async def _prefilled(
        self, progress: _Progress, route: Route, handles: Sequence[Handle]
    ) -> PrefillResponse:
        pod = self._choose(Tier.PREFILL, route.prefill, progress, handles)
        request = progress.prepared.generate_request(
            _fingerprint_of(handles), pod.model_digest, handles
        )
        try:
            with self._pools.working(pod.address):
                return await self._calls.prefill(pod.address, request, progress.deadline)
        except TriptychError as error:
            self._note(progress, pod, handles, error)
            raise

    def _decoded(
        self, progress: _Progress, route: Route, answer: PrefillResponse, holdings: Holdings
    ) -> AsyncGenerator[TokenEvent, None]:
        pod = self._choose(Tier.DECODE, route.decode, progress, ())
        request = DecodeRequest(
            request_id=progress.prepared.request_id,
            model_digest=pod.model_digest,
            kv=answer.kv,
            state=answer.state,
            sampling=progress.prepared.sampling,
        )
        tokens = self._calls.decode(pod.address, request, progress.deadline)
        return self._passed_on(progress, pod, [answer.kv], holdings, tokens)

    async def _passed_on(
        self,
        progress: _Progress,
        pod: Pod,
        handles: Sequence[Handle],
        holdings: Holdings,
        tokens: AsyncGenerator[TokenEvent, None],
    ) -> AsyncGenerator[TokenEvent, None]:
        """The tokens of ``pod``, which has fetched all that is held once it sends one."""
        try:
            with self._pools.working(pod.address):
                async with aclosing(tokens) as events:
                    async for event in events:
                        holdings.used()
                        _report(progress.journal, event)
                        yield event
        except TriptychError as error:
            self._note(progress, pod, handles, error)
            raise

    def _choose(
        self, tier: Tier, pods: Sequence[Pod], progress: _Progress, handles: Sequence[Handle]
    ) -> Pod:
        """The pod that holds what ``handles`` lead to, else the least busy one; none that has
        failed this request."""
        holders = {handle.instance for handle in handles}
        near = [pod for pod in pods if pod.instance in holders]
        key = progress.prepared.request_id.encode()
        for candidates in (near, pods):
            pod = least_busy(key, candidates, self._pools.work, progress.failed)
            if pod is not None:
                progress.journal.asked(tier, pod.address)
                return pod
        progress.exhausted = True
        raise progress.overloaded or Unavailable(
            f"no {tier} pod can take the request now", retry_after=1.0
        )

    def _note(
        self, progress: _Progress, pod: Pod, handles: Sequence[Handle], error: TriptychError
    ) -> None:
        """Remembers what failed. A pod that says ``Unavailable`` may mean the holder of a handle,
        so it is asked once more, with handles that are made anew."""
        told = isinstance(error, Unavailable) and not isinstance(error, PodLost)
        if told and handles and pod.address not in progress.told:
            progress.told.add(pod.address)
        elif isinstance(error, Unavailable | Overloaded):
            progress.failed.add(pod.address)
        if isinstance(error, Overloaded):
            progress.overloaded = error
        progress.corrupted |= isinstance(error, TransferCorrupted)
        for address in {pod.address, *(handle.source for handle in handles if told)}:
            self._pools.failed(address, error)
        progress.attempts.failed(pod.address, error)


def _may_retry(progress: _Progress, error: RetryableError) -> bool:
    """Not once the client has seen more than the first token, and stale handles are made anew
    once."""
    if progress.exhausted or progress.attempts.exhausted:
        return False
    if progress.seen > (0 if progress.first is None else 1):
        return False
    if isinstance(error, LeaseExpired | FingerprintMismatch | TransferCorrupted):
        progress.expired += 1
        return progress.expired <= 1
    return True


def _fingerprint_of(handles: Sequence[Handle]) -> str:
    return handles[0].fingerprint if handles else ""


def _report(journal: Journal, event: TokenEvent) -> None:
    if event.HasField("times"):
        journal.report(event.times)
