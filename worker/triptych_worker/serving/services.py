"""The gRPC services. A method parses, awaits the stage, serialises; errors are the boundary's."""

# ruff: noqa: N802 - methods are named in the protobuf
from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from triptych_contract.errors import NotFound
from triptych_contract.v1 import common_pb2, stages_pb2, stages_pb2_grpc, worker_pb2
from triptych_contract.v1.worker_pb2_grpc import CacheAdminServicer, WorkerServicer

from triptych_worker.domain import EncodeInput, TokenEvent
from triptych_worker.serving import checks, incoming, outgoing
from triptych_worker.serving.admission import ByteBudget
from triptych_worker.serving.logs import REQUEST_ID
from triptych_worker.serving.receiving import first_header, receive
from triptych_worker.serving.tier import Stages
from triptych_worker.serving.worker import Worker

_Context = grpc.aio.ServicerContext[Any, Any]
_Stage = TypeVar("_Stage")


class EncoderService(stages_pb2_grpc.EncoderServicer):
    """Leases embeddings, and makes those that nobody holds."""

    def __init__(self, worker: Worker, budget: ByteBudget, peer_seconds: float) -> None:
        self._worker = worker
        self._budget = budget
        self._peer_seconds = peer_seconds

    async def Lease(
        self, request: stages_pb2.LeaseRequest, context: _Context
    ) -> stages_pb2.LeaseResponse:
        """A handle or a miss for every key."""
        REQUEST_ID.set(incoming.request_id(request.request_id))
        keys = incoming.lease_keys(request)
        stage = _present(self._worker.for_encoder(request.fingerprint).stages.encode)
        handles = await stage.lease(
            keys,
            request.fingerprint,
            verify=request.verify,
            peer=checks.word("peer", request.peer, empty=True),
        )
        return outgoing.lease_response(handles)

    async def Encode(
        self, request_iterator: AsyncIterator[stages_pb2.EncodeChunk], context: _Context
    ) -> stages_pb2.EncodeResponse:
        """Receives one media item's tensors and answers with a leased embedding."""
        chunks = aiter(request_iterator)
        message = await first_header(chunks, self._peer_seconds)
        REQUEST_ID.set(incoming.request_id(message.request_id))
        header = incoming.encode_header(message, self._budget.capacity)
        stage = _present(self._worker.for_encoder(header.fingerprint).stages.encode)
        with self._budget.reserve(header.size_bytes):
            tensors = await receive(chunks, header.tensors, self._peer_seconds)
            item = EncodeInput(header.key, tensors, header.grid, header.visual_tokens)
            return outgoing.encode_response(await stage.encode(item, header.fingerprint))


class PrefillService(stages_pb2_grpc.PrefillServicer):
    """Runs prompts."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def Prefill(
        self, request: stages_pb2.GenerateRequest, context: _Context
    ) -> stages_pb2.PrefillResponse:
        """The first token and a leased KV handle."""
        stages = _language_stages(self._worker, request)
        prompt = incoming.generate_input(request)
        stage = _present(stages.prefill)
        return outgoing.prefill_response(await stage.prefill(prompt))


class DecodeService(stages_pb2_grpc.DecodeServicer):
    """Goes on with answers that a prefill began."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def Decode(
        self, request: stages_pb2.DecodeRequest, context: _Context
    ) -> AsyncGenerator[common_pb2.TokenEvent, None]:
        """Streams the tokens after those in the request's state."""
        stages = _language_stages(self._worker, request)
        answer = incoming.decode_input(request)
        return _messages(_present(stages.decode).decode(answer))


class FusedService(stages_pb2_grpc.FusedServicer):
    """Runs prompts and goes on with their answers in one process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def Generate(
        self, request: stages_pb2.GenerateRequest, context: _Context
    ) -> AsyncGenerator[common_pb2.TokenEvent, None]:
        """Streams all tokens of the answer."""
        stages = _language_stages(self._worker, request)
        prompt = incoming.generate_input(request)
        return _messages(_present(stages.fused).generate(prompt))


class DescribeService(WorkerServicer):
    """Tells who this process is, in every state."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def Describe(
        self, request: worker_pb2.DescribeRequest, context: _Context
    ) -> worker_pb2.DescribeResponse:
        """The state, identities, bounds and load of this process."""
        return self._worker.describe()


class CacheAdminService(CacheAdminServicer):
    """Every cache of the process, told and flushed together."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def Holdings(
        self, request: worker_pb2.HoldingsRequest, context: _Context
    ) -> worker_pb2.HoldingsResponse:
        """What is held, by cache and fingerprint."""
        return self._holdings()

    async def DropOthers(
        self, request: worker_pb2.DropOthersRequest, context: _Context
    ) -> worker_pb2.DropOthersResponse:
        """Drops every entry of another fingerprint than ``keep``."""
        keep = checks.digest_hex("keep", request.keep)
        dropped = [cache.drop_others(keep) for cache in self._worker.caches]
        return worker_pb2.DropOthersResponse(
            entries_dropped=sum(entries for entries, _ in dropped),
            bytes_freed=sum(freed for _, freed in dropped),
            remaining=self._holdings(),
        )

    def _holdings(self) -> worker_pb2.HoldingsResponse:
        held = [holding for cache in self._worker.caches for holding in cache.holdings()]
        return outgoing.holdings_response(self._worker.instance, held)


def _language_stages(
    worker: Worker, request: stages_pb2.GenerateRequest | stages_pb2.DecodeRequest
) -> Stages:
    """The stages of the language model that the request is for."""
    REQUEST_ID.set(incoming.request_id(request.request_id))
    return worker.for_model(checks.digest_hex("model_digest", request.model_digest)).stages


async def _messages(
    events: AsyncGenerator[TokenEvent, None],
) -> AsyncGenerator[common_pb2.TokenEvent, None]:
    async with aclosing(events):
        async for event in events:
            yield outgoing.token_event(event)


def _present(stage: _Stage | None) -> _Stage:
    if stage is None:
        raise NotFound("this tier has no such stage: ask a worker whose tier has it")
    return stage
