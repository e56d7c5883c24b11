"""From protobuf to the words of the worker. What comes in is untrusted: every field is checked.

Pure: no tensor is allocated here. All functions raise ``InvalidRequest`` naming the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from triptych_contract.errors import FingerprintMismatch, InvalidRequest, TooLarge
from triptych_contract.v1 import common_pb2, stages_pb2

from triptych_worker.domain import (
    DecodeInput,
    DecodeState,
    GenerateInput,
    Handle,
    HandleKind,
    MediaItem,
    Prompt,
    Sampling,
    Span,
)
from triptych_worker.serving import checks

MAX_TOKENS: Final = 2**20  # of a prompt, an answer, an embedding
MAX_MEDIA: Final = 1024
MAX_STOPS: Final = 16
MAX_TOP_LOGPROBS: Final = 20
MAX_LEASE_KEYS: Final = 1024
MAX_NAMED_TENSORS: Final = 16

_KINDS: Final = {
    common_pb2.HANDLE_KIND_EMBEDDING: HandleKind.EMBEDDING,
    common_pb2.HANDLE_KIND_KV: HandleKind.KV,
}


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor that is about to arrive."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EncodeHeader:
    """A checked ``EncodeHeader``: what an encode's bytes will be."""

    request_id: str
    fingerprint: str
    key: bytes
    tensors: tuple[TensorHeader, ...]
    grid: tuple[int, ...]
    visual_tokens: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(tensor.size_bytes for tensor in self.tensors)


def request_id(value: str) -> str:
    """May be empty; stands in log lines."""
    return checks.word("request_id", value, longest=128, empty=True)


def lease_keys(request: stages_pb2.LeaseRequest) -> tuple[bytes, ...]:
    """The keys of a ``LeaseRequest``, whose other fields are checked too."""
    request_id(request.request_id)
    checks.digest_hex("fingerprint", request.fingerprint)
    checks.count("keys", request.keys, least=1, most=MAX_LEASE_KEYS)
    return tuple(checks.key(f"keys[{i}]", key) for i, key in enumerate(request.keys))


def encode_header(message: stages_pb2.EncodeHeader, most_bytes: int) -> EncodeHeader:
    """The header of an encode whose tensors may take ``most_bytes`` together.

    Raises:
        TooLarge: they would take more.
    """
    checks.count("tensors", message.tensors, least=1, most=MAX_NAMED_TENSORS)
    tensors = tuple(
        _tensor_header(f"tensors[{i}]", tensor, most_bytes)
        for i, tensor in enumerate(message.tensors)
    )
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise InvalidRequest("tensors: two have the same name")
    header = EncodeHeader(
        request_id=request_id(message.request_id),
        fingerprint=checks.digest_hex("fingerprint", message.fingerprint),
        key=checks.key("key", message.key),
        tensors=tensors,
        grid=_grid("grid", message.grid),
        visual_tokens=checks.integer(
            "visual_tokens", message.visual_tokens, least=1, most=MAX_TOKENS
        ),
    )
    if header.size_bytes > most_bytes:
        raise TooLarge(
            f"tensors: {header.size_bytes} bytes exceed this worker's bound of {most_bytes}"
        )
    return header


def generate_input(message: stages_pb2.GenerateRequest) -> GenerateInput:
    """A request to prefill.

    Raises:
        FingerprintMismatch: a picture's handle is of another encoder than the request.
    """
    prompt = _prompt(message.prompt)
    if prompt.media or message.fingerprint:
        checks.digest_hex("fingerprint", message.fingerprint)
    for i, item in enumerate(prompt.media):
        if item.handle.fingerprint != message.fingerprint:
            raise FingerprintMismatch(
                f"prompt.media[{i}] was made by encoder {item.handle.fingerprint[:12]}, the "
                f"request is for {message.fingerprint[:12]}: lease the embedding again"
            )
    return GenerateInput(
        request_id=request_id(message.request_id),
        fingerprint=message.fingerprint,
        prompt=prompt,
        sampling=_sampling(message.sampling),
        salt=checks.key("tenant_salt", message.tenant_salt) if message.tenant_salt else b"",
    )


def decode_input(message: stages_pb2.DecodeRequest) -> DecodeInput:
    """A request to go on with an answer."""
    return DecodeInput(
        request_id=request_id(message.request_id),
        kv=handle("kv", message.kv, HandleKind.KV),
        state=_state(message.state),
        sampling=_sampling(message.sampling),
    )


def handle(field: str, message: common_pb2.Handle, kind: HandleKind) -> Handle:
    """A handle of ``kind``, whose size is that of its tensor."""
    if _KINDS.get(message.kind) is not kind:
        raise InvalidRequest(f"{field}.kind: must be {kind}")
    size = checks.tensor_bytes(f"{field}.tensor", message.tensor.shape, message.tensor.dtype)
    if size != message.size_bytes:
        raise InvalidRequest(
            f"{field}.size_bytes: {message.size_bytes} is not the tensor's size {size}"
        )
    checks.count(f"{field}.transports", message.transports, most=8)
    return Handle(
        kind=kind,
        lease_id=checks.word(f"{field}.lease_id", message.lease_id),
        source=checks.word(f"{field}.source", message.source),
        instance=checks.word(f"{field}.instance", message.instance),
        key=checks.key(f"{field}.key", message.key),
        fingerprint=checks.digest_hex(f"{field}.fingerprint", message.fingerprint),
        shape=tuple(message.tensor.shape),
        dtype=message.tensor.dtype,
        size_bytes=size,
        checksum=checks.exact_bytes(f"{field}.checksum", message.checksum, checks.CHECKSUM_BYTES),
        ttl_seconds=message.ttl_ms / 1000,
        transports=tuple(checks.word(f"{field}.transports", name) for name in message.transports),
    )


def _tensor_header(field: str, message: stages_pb2.NamedTensor, most_bytes: int) -> TensorHeader:
    spec = message.tensor
    return TensorHeader(
        name=checks.identifier(f"{field}.name", message.name),
        size_bytes=checks.tensor_bytes(f"{field}.tensor", spec.shape, spec.dtype, most=most_bytes),
        shape=tuple(spec.shape),
        dtype=spec.dtype,
    )


def _grid(field: str, sizes: Sequence[int]) -> tuple[int, ...]:
    return checks.shape(field, sizes) if sizes else ()


def _prompt(message: common_pb2.Prompt) -> Prompt:
    checks.count("prompt.token_ids", message.token_ids, least=1, most=MAX_TOKENS)
    checks.count("prompt.media", message.media, most=MAX_MEDIA)
    media = tuple(_media(f"prompt.media[{i}]", item) for i, item in enumerate(message.media))
    _check_spans(media, len(message.token_ids))
    return Prompt(tuple(message.token_ids), media)


def _media(field: str, message: common_pb2.MediaItem) -> MediaItem:
    checks.count(f"{field}.spans", message.spans, least=1, most=MAX_TOKENS)
    item = MediaItem(
        handle=handle(f"{field}.embedding", message.embedding, HandleKind.EMBEDDING),
        spans=tuple(Span(span.offset, span.length) for span in message.spans),
        grid=_grid(f"{field}.grid", message.grid),
    )
    rows, covered = item.handle.shape[0], sum(span.length for span in item.spans)
    if len(item.handle.shape) != 2 or rows != covered:
        raise InvalidRequest(
            f"{field}.spans: cover {covered} tokens, but the embedding's shape is "
            f"{list(item.handle.shape)}"
        )
    return item


def _check_spans(media: Sequence[MediaItem], prompt_tokens: int) -> None:
    """All spans, in the order of the message, lie one after another inside the prompt."""
    spans = [span for item in media for span in item.spans]
    if any(span.length < 1 for span in spans):
        raise InvalidRequest("prompt.media.spans: a span must have a length of at least 1")
    for before, after in pairwise(spans):
        if before.offset + before.length > after.offset:
            raise InvalidRequest(
                f"prompt.media.spans: {after.offset} begins before {before.offset} + "
                f"{before.length} ends; spans are in prompt order and do not overlap"
            )
    if spans and spans[-1].offset + spans[-1].length > prompt_tokens:
        raise InvalidRequest(
            f"prompt.media.spans: end at {spans[-1].offset + spans[-1].length}, after the prompt's "
            f"{prompt_tokens} tokens"
        )


def _sampling(message: common_pb2.Sampling) -> Sampling:
    checks.count("sampling.stop", message.stop, most=MAX_STOPS)
    for i, stop in enumerate(message.stop):
        checks.integer(f"sampling.stop[{i}] length", len(stop), least=1, most=1024)
    if message.top_logprobs and not message.logprobs:
        raise InvalidRequest("sampling.top_logprobs: needs sampling.logprobs")
    most = checks.integer("sampling.max_tokens", message.max_tokens, least=1, most=MAX_TOKENS)
    return Sampling(
        temperature=checks.number("sampling.temperature", message.temperature, least=0, most=100),
        top_p=_top_p(message.top_p),
        top_k=checks.integer("sampling.top_k", message.top_k, least=0, most=2**31 - 1),
        seed=message.seed,
        max_tokens=most,
        min_tokens=checks.integer("sampling.min_tokens", message.min_tokens, least=0, most=most),
        stop=tuple(message.stop),
        ignore_eos=message.ignore_eos,
        logprobs=message.logprobs,
        top_logprobs=checks.integer(
            "sampling.top_logprobs", message.top_logprobs, least=0, most=MAX_TOP_LOGPROBS
        ),
    )


def _top_p(value: float) -> float:
    if not 0 < value <= 1:  # NaN too
        raise InvalidRequest(f"sampling.top_p: must be above 0 and at most 1, not {value}")
    return value


def _state(message: stages_pb2.DecodeState) -> DecodeState:
    outputs = message.output_token_ids
    checks.count("state.output_token_ids", outputs, least=1, most=MAX_TOKENS)
    return DecodeState(
        prompt_tokens=checks.integer(
            "state.prompt_tokens", message.prompt_tokens, least=1, most=MAX_TOKENS
        ),
        position_delta=checks.integer(
            "state.position_delta", message.position_delta, least=-MAX_TOKENS, most=MAX_TOKENS
        ),
        output_token_ids=tuple(outputs),
    )
