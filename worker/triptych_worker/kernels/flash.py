"""Attention of many tokens: softmax(Q K^T) V, never with the scores of all keys at once.

The algorithm is FlashAttention's (Dao et al. 2022): keys are taken a panel at a time, and what was
summed is scaled again when a higher score comes. Sums are in float32 whatever the type; of bfloat16
what becomes of the scores is rounded to that type before it meets the values, as PyTorch does.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch

from triptych_worker.kernels.flash_code import FIELDS, program
from triptych_worker.kernels.flash_room import QUERIES, Room
from triptych_worker.kernels.machine import Code, Processor, processor
from triptych_worker.kernels.vectors import KINDS, serves

_LEAST_SIZE: Final = 8  # of a head, below which a vector would be mostly empty


@dataclass(frozen=True, slots=True)
class Span:
    """Queries side by side that see keys side by side.

    Args:
        query: first query's row.
        queries: how many.
        key: first key's row.
        keys: how many the first query sees; the next sees one more if it is causal.
    """

    query: int
    queries: int
    key: int
    keys: int


class Spans:
    """What attends to what in one batch.

    Args:
        spans: no query is in two of them.
        causal: whether each query sees one key more than the one before it.
    """

    def __init__(self, spans: Iterable[Span], *, causal: bool) -> None:
        self.causal = causal
        found = [span for span in spans if span.queries]
        self.valid = all(min(span.query, span.key, span.keys - 1) >= 0 for span in found)
        self.queries = max((span.query + span.queries for span in found), default=0)
        self.keys = max(
            (span.key + self._seen(span, span.queries - 1) for span in found), default=0
        )
        items = [item for span in found for item in self._items(span)]
        self.items = torch.tensor(items, dtype=torch.int64).view(-1, FIELDS)

    def _seen(self, span: Span, query: int) -> int:
        return span.keys + (query if self.causal else 0)

    def _items(self, span: Span) -> Iterator[tuple[int, ...]]:
        for first in range(0, span.queries, QUERIES):
            count = min(QUERIES, span.queries - first)
            yield (span.query + first, count, span.key, self._seen(span, first))


def attends(dtype: torch.dtype, size: int, target: Processor | None = None) -> bool:
    """Whether there is code for heads of ``size`` on ``target``; None is this machine."""
    return serves(dtype, target) and size >= _LEAST_SIZE and size % 2 == 0


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    spans: Spans,
    scaling: float,
) -> torch.Tensor:
    """Attention output [T, heads * D]; rows that are in no span are left as they come.

    Args:
        query: [T, heads, D].
        keys: [tokens, kv_heads, D]; heads / kv_heads queries after each other share one.
        values: as ``keys``, and laid out as they are.
        spans: of the T rows and the tokens.
        scaling: of the scores.

    Raises:
        ValueError: shapes or types do not fit, or a span is outside of them.
    """
    _check(query, keys, values, spans)
    rows, heads, size = query.shape
    out = torch.empty(rows, heads * size, dtype=query.dtype)
    _code(query.dtype, size)(
        query.data_ptr(),
        keys.data_ptr(),
        values.data_ptr(),
        spans.items.data_ptr(),
        _scratch.of(torch.get_num_threads() * Room(KINDS[query.dtype], size).whole),
        out.data_ptr(),
        len(spans.items),
        heads,
        heads // keys.shape[1],
        query.stride(0),
        query.stride(1),
        keys.stride(0),
        keys.stride(1),
        int(spans.causal),
        int.from_bytes(struct.pack("<f", scaling), "little"),
    )
    return out


def prepare(dtype: torch.dtype, size: int) -> None:
    """Compiles now rather than within the first answer, if there is code for such heads."""
    if attends(dtype, size):
        _code(dtype, size)


def _check(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spans: Spans) -> None:
    heads, kv_heads, size = query.shape[1], keys.shape[1], query.shape[2]
    fits = heads % kv_heads == 0 and keys.shape[2] == size and keys.shape == values.shape
    same = query.dtype == keys.dtype == values.dtype and query.device.type == "cpu"
    if not (attends(query.dtype, size) and fits and same):
        raise ValueError(
            f"{tuple(query.shape)} of {query.dtype} over {tuple(keys.shape)} is not served"
        )
    if {query.stride(2), keys.stride(2), values.stride(2)} != {1}:
        raise ValueError("the numbers of a head must lie next to each other")
    if keys.stride() != values.stride():
        raise ValueError("values must be laid out as keys are")
    if not spans.valid or spans.queries > len(query) or spans.keys > len(keys):
        raise ValueError(f"spans up to {spans.queries} and {spans.keys} are not in the rows")


class _Scratch(threading.local):
    """Memory that the calls of one thread of Python use one after another."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def of(self, size: int) -> int:
        """The address of at least ``size`` bytes, until the next call."""
        if self._memory.numel() < size:
            self._memory = torch.empty(size, dtype=torch.uint8)
        return self._memory.data_ptr()


_scratch: Final = _Scratch()


@cache
def _code(dtype: torch.dtype, size: int) -> Code:
    return Code(program(KINDS[dtype], size), processor())
