"""From the words of the worker to protobuf. Pure; ``token_event`` runs once per token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from triptych_contract.v1 import common_pb2, stages_pb2, worker_pb2

from triptych_worker.domain import (
    Capacity,
    DecodeState,
    Encoded,
    FinishReason,
    Handle,
    HandleKind,
    Holding,
    Load,
    Logprobs,
    Prefilled,
    StageTimes,
    TokenEvent,
    TokenLogprob,
)

_KINDS: Final = {
    HandleKind.EMBEDDING: common_pb2.HANDLE_KIND_EMBEDDING,
    HandleKind.KV: common_pb2.HANDLE_KIND_KV,
}
_FINISH_REASONS: Final = {
    None: common_pb2.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
}


def lease_response(handles: Iterable[Handle | None]) -> stages_pb2.LeaseResponse:
    """One result per key, a miss where there is no handle."""
    return stages_pb2.LeaseResponse(
        results=[
            stages_pb2.LeaseResult(miss=True)
            if found is None
            else stages_pb2.LeaseResult(handle=handle(found))
            for found in handles
        ]
    )


def encode_response(encoded: Encoded) -> stages_pb2.EncodeResponse:
    """The answer to an encode."""
    return stages_pb2.EncodeResponse(
        handle=handle(encoded.handle), times=stage_times(encoded.times), cached=encoded.cached
    )


def prefill_response(prefilled: Prefilled) -> stages_pb2.PrefillResponse:
    """The answer to a prefill."""
    return stages_pb2.PrefillResponse(
        first=token_event(prefilled.first),
        kv=None if prefilled.kv is None else handle(prefilled.kv),
        state=decode_state(prefilled.state),
    )


def decode_state(state: DecodeState) -> stages_pb2.DecodeState:
    """What decode needs beside the keys and values."""
    return stages_pb2.DecodeState(
        prompt_tokens=state.prompt_tokens,
        position_delta=state.position_delta,
        output_token_ids=state.output_token_ids,
    )


def token_event(event: TokenEvent) -> common_pb2.TokenEvent:
    """One generated token."""
    return common_pb2.TokenEvent(
        token_id=event.token_id,
        text=event.text,
        logprobs=None if event.logprobs is None else _logprobs(event.logprobs),
        finish_reason=_FINISH_REASONS[event.finish_reason],
        times=None if event.times is None else stage_times(event.times),
    )


def stage_times(times: StageTimes) -> common_pb2.StageTimes:
    """Seconds by stage and counts."""
    return common_pb2.StageTimes(seconds=times.seconds, counts=times.counts)


def handle(lease: Handle) -> common_pb2.Handle:
    """A lease as it travels."""
    return common_pb2.Handle(
        kind=_KINDS[lease.kind],
        lease_id=lease.lease_id,
        source=lease.source,
        instance=lease.instance,
        key=lease.key,
        fingerprint=lease.fingerprint,
        tensor=common_pb2.TensorSpec(shape=lease.shape, dtype=lease.dtype),
        size_bytes=lease.size_bytes,
        checksum=lease.checksum,
        ttl_ms=round(lease.ttl_seconds * 1000),
        transports=lease.transports,
    )


def capacity(bounds: Capacity) -> worker_pb2.Capacity:
    """The bounds of a worker."""
    return worker_pb2.Capacity(
        context_tokens=bounds.context_tokens,
        kv_tokens=bounds.kv_tokens,
        embedding_cache_bytes=bounds.embedding_cache_bytes,
        max_running=bounds.max_running,
        max_batch_visual_tokens=bounds.max_batch_visual_tokens,
    )


def load(now: Load) -> worker_pb2.Load:
    """What a worker has to do right now."""
    return worker_pb2.Load(
        running=now.running,
        waiting=now.waiting,
        backlog_tokens=now.backlog_tokens,
        kv_tokens_used=now.kv_tokens_used,
        leases=now.leases,
    )


def holdings_response(instance: str, holdings: Iterable[Holding]) -> worker_pb2.HoldingsResponse:
    """What the caches of one process hold."""
    return worker_pb2.HoldingsResponse(
        instance=instance,
        holdings=[
            worker_pb2.Holding(
                cache=held.cache,
                fingerprint=held.fingerprint,
                entries=held.entries,
                bytes=held.bytes,
                leased_bytes=held.leased_bytes,
            )
            for held in holdings
        ],
    )


def _logprobs(logprobs: Logprobs) -> common_pb2.Logprobs:
    return common_pb2.Logprobs(
        chosen=_token_logprob(logprobs.chosen), top=[_token_logprob(one) for one in logprobs.top]
    )


def _token_logprob(one: TokenLogprob) -> common_pb2.TokenLogprob:
    return common_pb2.TokenLogprob(
        token_id=one.token_id, text=one.text, logprob=one.logprob, utf8=one.utf8
    )
