"""Attention over packed tokens of many sequences, reading and writing the KV pool.

A forward pass gets T tokens and this module's plan, which says whose they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

from triptych_worker.kernels import attention as single
from triptych_worker.kernels import flash
from triptych_worker.kernels.attention import Places
from triptych_worker.kernels.flash import Span, Spans
from triptych_worker.language.pool import KvPool


@dataclass(frozen=True, slots=True)
class Segment:
    """``length`` new tokens of one sequence, whose range of the pool holds ``past`` before them."""

    kv_start: int
    past: int
    length: int


def single_tokens(segments: Iterable[Segment], rows: Iterable[int]) -> Iterator[Segment]:
    """Ascending ``rows`` of the packed tokens, each as a segment of one token."""
    wanted = iter(rows)
    row = next(wanted, None)
    first = 0
    for segment in segments:
        while row is not None and row < first + segment.length:
            yield Segment(segment.kv_start, segment.past + row - first, 1)
            row = next(wanted, None)
        first += segment.length


class AttentionPlan:
    """Where the new keys and values of a batch go, and what each of its tokens may see."""

    def __init__(self, segments: Sequence[Segment], pool: KvPool) -> None:
        self._pool = pool.tensor
        self._slots = _slots(segments, pool.tensor.device)
        self._length = sum(segment.length for segment in segments)
        self._way = _way(segments, pool)

    def write(self, layer: int, kv: torch.Tensor) -> None:
        """Puts keys and values of ``layer`` into the pool.

        Args:
            layer: its number.
            kv: [T, 2 * kv_heads, D], keys before values.
        """
        place = self._pool[layer]
        tokens = kv.view(self._length, 2, -1, kv.shape[-1]).permute(1, 2, 0, 3)
        if isinstance(self._slots, slice):
            place[:, :, self._slots] = tokens
        else:
            place.index_copy_(2, self._slots, tokens)

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attention output [T, heads * D] for ``query`` [T, heads, D]."""
        return self._way.attend(layer, query, scaling)


def _slots(segments: Sequence[Segment], device: torch.device) -> slice | torch.Tensor:
    """Places of the pool: a slice when there is one segment, which is copied faster."""
    ranges = [
        range(segment.kv_start + segment.past, segment.kv_start + segment.past + segment.length)
        for segment in segments
    ]
    if len(ranges) == 1:
        return slice(ranges[0].start, ranges[0].stop)
    return torch.tensor([place for each in ranges for place in each], device=device)


class _Way(Protocol):
    """See ``AttentionPlan.attend``."""

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor: ...


def _way(segments: Sequence[Segment], pool: KvPool) -> _Way:
    """By kernels of our own where there are such."""
    kind, size, on_cpu = pool.tensor.dtype, pool.tensor.shape[-1], pool.tensor.device.type == "cpu"
    singly = on_cpu and single.attends(kind, size)
    if singly and segments and all(segment.length == 1 for segment in segments):
        return _Singles(segments, pool.tensor)
    if on_cpu and flash.attends(kind, size):
        return _Packed(segments, pool.tensor, singly=singly)
    return _Each(segments, pool)


class _Singles:
    """One token of each sequence, in one call."""

    def __init__(self, segments: Sequence[Segment], pool: torch.Tensor) -> None:
        self._pool = pool
        starts = [segment.kv_start for segment in segments]
        self._places = Places(starts, [segment.past + 1 for segment in segments])

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        return single.attend(query, self._pool[layer], self._places, scaling)


class _Packed:
    """Many tokens of sequences in one call, single ones between them in another if ``singly``."""

    def __init__(self, segments: Sequence[Segment], pool: torch.Tensor, *, singly: bool) -> None:
        self._pool = pool
        spans, singles, rows, row = [], [], [], 0
        for segment in segments:
            if segment.length == 1 and singly:
                singles.append(segment)
                rows.append(row)
            else:
                spans.append(Span(row, segment.length, segment.kv_start, segment.past + 1))
            row += segment.length
        self._spans = Spans(spans, causal=True)
        self._singles = _Singles(singles, pool) if singles else None
        self._rows = torch.tensor(rows)

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        keys, values = self._pool[layer].transpose(1, 2)
        attended = flash.attend(query, keys, values, self._spans, scaling)
        if self._singles is not None:
            ours = self._singles.attend(layer, query[self._rows], scaling)
            attended.index_copy_(0, self._rows, ours)
        return attended


@dataclass(frozen=True, slots=True)
class _Attended:
    """One segment with all that does not depend on the layer."""

    kv: Sequence[torch.Tensor]  # keys of layer i at 2 i, values after; each [1, kv_heads, L, D]
    mask: torch.Tensor | None  # [length, L] to add, for a chunk with a past

    def of(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values."""
        return self.kv[2 * layer], self.kv[2 * layer + 1]


class _Each:
    """PyTorch's attention, segment by segment."""

    def __init__(self, segments: Sequence[Segment], pool: KvPool) -> None:
        self._lengths = [segment.length for segment in segments]
        self._attended = tuple(_attended(each, pool) for each in segments)

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        outputs = [
            _ATTEND[part.shape[0] == 1](part, attended, layer, scaling)
            for part, attended in zip(
                torch.split(query, self._lengths), self._attended, strict=True
            )
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attended(segment: Segment, pool: KvPool) -> _Attended:
    total = segment.past + segment.length
    view = pool.heads(segment.kv_start, total)
    # One call makes the views of all layers; made layer by layer they would cost more than the
    # attention of a single token.
    kv = view.flatten(0, 1).unsqueeze(1).unbind(0)
    mask = None
    if segment.past and segment.length > 1:
        blocked = torch.ones(segment.length, total, dtype=torch.bool, device=view.device)
        mask = torch.zeros(segment.length, total, dtype=view.dtype, device=view.device)
        mask.masked_fill_(blocked.triu(segment.past + 1), float("-inf"))
    return _Attended(kv, mask)


def _one_token(
    query: torch.Tensor, attended: _Attended, layer: int, scaling: float
) -> torch.Tensor:
    """One token sees everything: heads that share keys become the queries of one head."""
    keys, values = attended.of(layer)
    grouped = query.reshape(1, keys.shape[1], -1, keys.shape[3])
    output = scaled_dot_product_attention(grouped, keys, values, scale=scaling)
    return output.reshape(1, -1)


def _many_tokens(
    query: torch.Tensor, attended: _Attended, layer: int, scaling: float
) -> torch.Tensor:
    keys, values = attended.of(layer)
    output = scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        keys,
        values,
        attn_mask=attended.mask,
        is_causal=attended.mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return output[0].transpose(0, 1).flatten(1)


_ATTEND: Final = {True: _one_token, False: _many_tokens}
