"""What the worker says comes back as it was said; what it hears is checked field by field."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from triptych_contract.errors import FingerprintMismatch, InvalidRequest, TooLarge
from triptych_contract.v1 import common_pb2, stages_pb2
from triptych_worker.domain import DecodeState, Handle, HandleKind, Sampling
from triptych_worker.serving import checks, incoming, outgoing

FINGERPRINT = "ab" * 32
OTHER = "cd" * 32
MIB = 1024 * 1024

words = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)
digests = st.binary(min_size=32, max_size=32)


@st.composite
def handles(draw: st.DrawFn, kind: HandleKind | None = None) -> Handle:
    shape = tuple(draw(st.lists(st.integers(1, 64), min_size=1, max_size=8)))
    dtype = draw(st.sampled_from(sorted(checks.ELEMENT_BYTES)))
    return Handle(
        kind=kind or draw(st.sampled_from(HandleKind)),
        lease_id=draw(words),
        source=draw(words),
        instance=draw(words),
        key=draw(digests),
        fingerprint=draw(digests).hex(),
        shape=shape,
        dtype=dtype,
        size_bytes=math.prod(shape) * checks.ELEMENT_BYTES[dtype],
        checksum=draw(st.binary(min_size=16, max_size=16)),
        ttl_seconds=draw(st.integers(0, 10**6)) / 1000,
        transports=tuple(draw(st.lists(words, max_size=3))),
    )


samplings = st.builds(
    Sampling,
    temperature=st.floats(0, 100, width=32),
    top_p=st.floats(0, 1, exclude_min=True, width=32),
    top_k=st.integers(0, 2**31 - 1),
    seed=st.integers(0, 2**64 - 1),
    max_tokens=st.integers(1, incoming.MAX_TOKENS),
    stop=st.lists(words, max_size=4).map(tuple),
    ignore_eos=st.booleans(),
)


def embedding(rows: int, fingerprint: str = FINGERPRINT) -> common_pb2.Handle:
    return common_pb2.Handle(
        kind=common_pb2.HANDLE_KIND_EMBEDDING,
        lease_id="lease",
        source="127.0.0.1:1",
        instance="instance",
        key=b"k" * 32,
        fingerprint=fingerprint,
        tensor=common_pb2.TensorSpec(shape=[rows, 8], dtype="float32"),
        size_bytes=rows * 32,
        checksum=b"c" * 16,
    )


def picture(*spans: tuple[int, int], rows: int | None = None) -> common_pb2.MediaItem:
    covered = sum(length for _, length in spans)
    return common_pb2.MediaItem(
        embedding=embedding(covered if rows is None else rows),
        spans=[common_pb2.Span(offset=offset, length=length) for offset, length in spans],
        grid=[1, 4, 4],
    )


def request(*media: common_pb2.MediaItem, tokens: int = 20) -> stages_pb2.GenerateRequest:
    return stages_pb2.GenerateRequest(
        request_id="request-1",
        fingerprint=FINGERPRINT if media else "",
        prompt=common_pb2.Prompt(token_ids=range(tokens), media=media),
        sampling=common_pb2.Sampling(top_p=1, max_tokens=5),
    )


def header(**changes: object) -> stages_pb2.EncodeHeader:
    fields: dict[str, object] = {
        "request_id": "request-1",
        "fingerprint": FINGERPRINT,
        "key": b"k" * 32,
        "tensors": [named("pixel_values", [16, 8])],
        "grid": [1, 4, 4],
        "visual_tokens": 4,
    }
    return stages_pb2.EncodeHeader(**(fields | changes))


def named(name: str, shape: list[int], dtype: str = "float32") -> stages_pb2.NamedTensor:
    return stages_pb2.NamedTensor(name=name, tensor=common_pb2.TensorSpec(shape=shape, dtype=dtype))


@given(handles())
def test_a_handle_comes_back_as_it_was_sent(handle: Handle) -> None:
    wire = common_pb2.Handle.FromString(outgoing.handle(handle).SerializeToString())
    assert incoming.handle("handle", wire, handle.kind) == handle


@given(handles(HandleKind.KV), st.lists(st.integers(0, 2**32 - 1), min_size=1), samplings)
def test_a_decode_request_comes_back_as_it_was_sent(
    kv: Handle, outputs: list[int], sampling: Sampling
) -> None:
    state = DecodeState(prompt_tokens=7, position_delta=-3, output_token_ids=tuple(outputs))
    wire = stages_pb2.DecodeRequest(
        request_id="request-1",
        kv=outgoing.handle(kv),
        state=outgoing.decode_state(state),
        sampling=common_pb2.Sampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            max_tokens=sampling.max_tokens,
            stop=sampling.stop,
            ignore_eos=sampling.ignore_eos,
        ),
    )
    heard = incoming.decode_input(stages_pb2.DecodeRequest.FromString(wire.SerializeToString()))
    assert (heard.kv, heard.state, heard.sampling) == (kv, state, sampling)


def test_a_prompt_keeps_its_pictures_in_order() -> None:
    heard = incoming.generate_input(request(picture((1, 4)), picture((5, 2), (9, 3))))
    assert [[(s.offset, s.length) for s in item.spans] for item in heard.prompt.media] == [
        [(1, 4)],
        [(5, 2), (9, 3)],
    ]
    assert heard.prompt.token_ids == tuple(range(20))
    assert heard.prompt.media[0].grid == (1, 4, 4)


def test_a_tenants_salt_is_a_whole_digest_or_none() -> None:
    asked = request()
    assert incoming.generate_input(asked).salt == b""
    asked.tenant_salt = b"s" * 32
    assert incoming.generate_input(asked).salt == b"s" * 32
    asked.tenant_salt = b"s" * 31
    with pytest.raises(InvalidRequest, match="tenant_salt: must be 32 bytes"):
        incoming.generate_input(asked)


@pytest.mark.parametrize(
    ("media", "says"),
    [
        ([picture((18, 4))], "end at 22, after the prompt's 20 tokens"),
        ([picture((2**32 - 1, 4))], "after the prompt's 20 tokens"),
        ([picture((1, 4)), picture((4, 4))], "4 begins before 1 \\+ 4 ends"),
        ([picture((8, 2)), picture((1, 4))], "1 begins before 8 \\+ 2 ends"),
        ([picture((1, 0), (2, 4))], "a span must have a length of at least 1"),
        ([picture((1, 4), rows=5)], r"media\[0\].spans: cover 4 tokens"),
        ([picture()], r"media\[0\].spans: must have 1 to"),
    ],
)
def test_spans_that_do_not_fit_the_prompt_are_refused(
    media: list[common_pb2.MediaItem], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        incoming.generate_input(request(*media))


def test_a_picture_of_another_encoder_is_a_mismatch_that_can_be_retried() -> None:
    stale = picture((1, 4))
    stale.embedding.fingerprint = OTHER
    with pytest.raises(FingerprintMismatch, match=r"media\[0\] was made by encoder cdcd"):
        incoming.generate_input(request(stale))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda m: setattr(m, "temperature", math.nan), "sampling.temperature"),
        (lambda m: setattr(m, "temperature", math.inf), "sampling.temperature"),
        (lambda m: setattr(m, "temperature", -0.5), "sampling.temperature"),
        (lambda m: setattr(m, "top_p", 0), "sampling.top_p"),
        (lambda m: setattr(m, "top_p", math.nan), "sampling.top_p"),
        (lambda m: setattr(m, "top_p", 1.5), "sampling.top_p"),
        (lambda m: setattr(m, "top_k", 2**32 - 1), "sampling.top_k"),
        (lambda m: setattr(m, "max_tokens", 0), "sampling.max_tokens"),
        (lambda m: setattr(m, "max_tokens", 2**32 - 1), "sampling.max_tokens"),
        (lambda m: setattr(m, "min_tokens", 6), "sampling.min_tokens"),
        (lambda m: setattr(m, "top_logprobs", 3), "sampling.top_logprobs"),
        (lambda m: m.stop.append(""), r"sampling.stop\[0\]"),
        (lambda m: m.stop.extend("x" * 17), "sampling.stop"),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(
    change: Callable[[common_pb2.Sampling], None], field: str
) -> None:
    wrong = request()
    change(wrong.sampling)
    with pytest.raises(InvalidRequest, match=f"^{field}"):
        incoming.generate_input(wrong)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda m: setattr(m, "lease_id", ""), "lease_id"),
        (lambda m: setattr(m, "source", "two words"), "source"),
        (lambda m: setattr(m, "source", "x" * 257), "source"),
        (lambda m: setattr(m, "key", b"short"), "key"),
        (lambda m: setattr(m, "fingerprint", "AB" * 32), "fingerprint"),
        (lambda m: setattr(m, "checksum", b""), "checksum"),
        (lambda m: setattr(m, "size_bytes", 1), "size_bytes"),
        (lambda m: setattr(m.tensor, "dtype", "complex64"), "tensor.dtype"),
        (lambda m: m.tensor.shape.append(-1), "tensor.shape"),
        (lambda m: m.tensor.shape.extend([1] * 8), "tensor.shape"),
        (lambda m: setattr(m, "kind", common_pb2.HANDLE_KIND_KV), "kind"),
        (lambda m: setattr(m, "kind", 99), "kind"),
    ],
)
def test_a_malformed_handle_is_refused_by_the_field_that_is_wrong(
    change: Callable[[common_pb2.Handle], None], field: str
) -> None:
    item = picture((1, 4))
    change(item.embedding)
    with pytest.raises(InvalidRequest, match=rf"^prompt.media\[0\].embedding.{field}"):
        incoming.generate_input(request(item))


def test_an_encode_header_is_understood_and_its_bytes_are_counted() -> None:
    tensors = [named("pixel_values", [16, 8]), named("pixel_attention_mask", [4], "int64")]
    heard = incoming.encode_header(header(tensors=tensors), MIB)
    assert heard.size_bytes == 16 * 8 * 4 + 4 * 8
    assert [tensor.name for tensor in heard.tensors] == ["pixel_values", "pixel_attention_mask"]
    assert (heard.grid, heard.visual_tokens) == ((1, 4, 4), 4)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"request_id": "a b"}, "^request_id"),
        ({"request_id": "x" * 129}, "^request_id"),
        ({"fingerprint": "ab"}, "^fingerprint"),
        ({"key": b"short"}, "^key: must be 32 bytes, not 5"),
        ({"tensors": []}, "^tensors"),
        ({"tensors": [named("a", [1]), named("a", [1])]}, "two have the same name"),
        ({"tensors": [named("pixel values", [1])]}, r"^tensors\[0\].name"),
        ({"tensors": [named("a", [0])]}, r"^tensors\[0\].tensor.shape"),
        ({"tensors": [named("a", [])]}, r"^tensors\[0\].tensor.shape"),
        ({"tensors": [named("a", [1], "float64")]}, r"^tensors\[0\].tensor.dtype"),
        ({"grid": [1, -2, 3]}, "^grid"),
        ({"visual_tokens": 0}, "^visual_tokens"),
    ],
)
def test_a_malformed_encode_header_is_refused_by_the_field_that_is_wrong(
    changes: dict[str, object], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        incoming.encode_header(header(**changes), MIB)


@pytest.mark.parametrize(
    "tensors",
    [
        [named("a", [2**62, 2**62])],
        [named("a", [MIB // 4 + 1])],
        [named("a", [MIB // 8]), named("b", [MIB // 8 + 1])],
    ],
)
def test_tensors_beyond_the_bound_are_refused_before_any_memory_is_taken(
    tensors: list[stages_pb2.NamedTensor],
) -> None:
    with pytest.raises(TooLarge, match=f"bound of {MIB}"):
        incoming.encode_header(header(tensors=tensors), MIB)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (stages_pb2.LeaseRequest(fingerprint=FINGERPRINT), "^keys"),
        (stages_pb2.LeaseRequest(fingerprint=FINGERPRINT, keys=[b"x"]), r"^keys\[0\]"),
        (stages_pb2.LeaseRequest(keys=[b"k" * 32]), "^fingerprint"),
    ],
)
def test_a_malformed_lease_request_is_refused(message: stages_pb2.LeaseRequest, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        incoming.lease_keys(message)


@given(st.integers(min_value=0), st.integers(0, 255))
def test_a_request_with_a_byte_changed_is_either_understood_or_refused(
    position: int, value: int
) -> None:
    content = bytearray(request(picture((1, 4)), picture((5, 2))).SerializeToString())
    content[position % len(content)] = value
    with contextlib.suppress(DecodeError, InvalidRequest, FingerprintMismatch):
        incoming.generate_input(stages_pb2.GenerateRequest.FromString(bytes(content)))
