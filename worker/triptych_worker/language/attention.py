"""Attention over packed tokens of many sequences, reading and writing the KV pool.

Registered with transformers as ``triptych``, so that the text models of all families run on it: a
forward pass gets [1, T] tokens and this module's plan, which says whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from triptych_worker.language.pool import KvPool

IMPLEMENTATION: Final = "triptych"


@dataclass(frozen=True, slots=True)
class Segment:
    """``length`` new tokens of one sequence, whose range of the pool holds ``past`` before them."""

    kv_start: int
    past: int
    length: int


@dataclass(frozen=True, slots=True)
class _Attended:
    """One segment with all that does not depend on the layer."""

    length: int
    kv: Sequence[torch.Tensor]  # keys of layer i at 2 i, values after; each [1, kv_heads, L, D]
    mask: torch.Tensor | None  # [length, L] to add, for a chunk with a past


class AttentionPlan:
    """Where the new keys and values of a batch go, and what each of its tokens may see."""

    def __init__(self, segments: Sequence[Segment], pool: KvPool) -> None:
        device = pool.tensor.device
        self._layers = pool.tensor
        self._slots = torch.tensor(list(_slots(segments)), device=device)
        self._length = len(self._slots)
        self._attended = tuple(_attended(segment, pool) for segment in segments)

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Puts keys and values [1, kv_heads, T, D] of ``layer`` into the pool.

        Tokens beyond those of the segments are filling, which nobody sees.
        """
        for kind, new in enumerate((key, value)):
            self._layers[layer, kind].index_copy_(1, self._slots, new[0, :, : self._length])

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attention output [1, T, heads * D] for ``query`` [1, heads, T, D]."""
        outputs = []
        row = 0
        rows = query[0].transpose(0, 1)
        for segment in self._attended:
            keys, values = segment.kv[2 * layer], segment.kv[2 * layer + 1]
            taken = rows[row : row + segment.length]
            attend = _one_token if segment.length == 1 else _many_tokens
            outputs.append(attend(taken, keys, values, segment.mask, scaling))
            row += segment.length
        filling = query.shape[2] - self._length
        if filling:
            outputs.append(query.new_zeros(filling, query.shape[1] * query.shape[3]))
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).unsqueeze(0)


def _slots(segments: Sequence[Segment]) -> Iterator[int]:
    for segment in segments:
        first = segment.kv_start + segment.past
        yield from range(first, first + segment.length)


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
    return _Attended(segment.length, kv, mask)


def _one_token(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
) -> torch.Tensor:
    """One token sees everything: heads that share keys become the queries of one head."""
    del mask
    grouped = query.reshape(1, keys.shape[1], -1, keys.shape[3])
    output = scaled_dot_product_attention(grouped, keys, values, scale=scaling)
    return output.reshape(1, -1)


def _many_tokens(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
) -> torch.Tensor:
    output = scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return output[0].transpose(0, 1).flatten(1)


def _packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    plan: AttentionPlan,
    **_: object,
) -> tuple[torch.Tensor, None]:
    del attention_mask
    layer = module.layer_idx
    if not isinstance(layer, int):
        raise TypeError("attention module has no layer number")
    plan.write(layer, key, value)
    return plan.attend(layer, query, scaling), None


ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, _packed_attention)
