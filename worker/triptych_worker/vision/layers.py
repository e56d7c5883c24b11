"""Layers that compute what transformers' vision modules compute, in fewer passes over memory."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from triptych_worker.kernels import flash, rotation
from triptych_worker.kernels.flash import Span, Spans
from triptych_worker.vision.segments import Run, runs


class Within:
    """Packed rows that attend to each other inside segments.

    Args:
        lengths: of the segments, which lie side by side from row 0 on.
    """

    def __init__(self, lengths: Iterable[int]) -> None:
        self.runs = runs(lengths)

    @cached_property
    def spans(self) -> Spans:
        """For the kernel of our own."""
        segments = (
            Span(start, run.length, start, run.length)
            for run in self.runs
            for start in range(run.start, run.stop, run.length)
        )
        return Spans(segments, causal=False)


@dataclass(frozen=True, slots=True)
class Segments:
    """What attends to what in one packed batch."""

    frames: Within
    windows: Within


def specialise(module: Any, full_blocks: AbstractSet[int]) -> None:
    """Replaces layers of a Qwen vision module in place; parameters are shared, not copied.

    From then on the module's forward needs ``segments=Segments(...)``.
    """
    module.patch_embed = as_linear(module.patch_embed.proj)
    for index, block in enumerate(module.blocks):
        block.attn = SegmentAttention(block.attn, windowed=index not in full_blocks)


def as_linear(convolution: nn.Conv3d) -> nn.Linear:
    """A convolution whose stride is its kernel, as the matrix product that it is on patches laid
    out flat: [patches, values of a patch] -> [patches, hidden]."""
    state = {"weight": convolution.weight.flatten(1)}
    if convolution.bias is not None:
        state["bias"] = convolution.bias
    hidden, values = state["weight"].shape
    linear = nn.Linear(values, hidden, bias="bias" in state, device="meta")
    linear.load_state_dict(state, assign=True)
    return linear.requires_grad_(requires_grad=False)


class SegmentAttention(nn.Module):
    """Attention inside the segments of packed rows: in one call by our own kernel, or one batched
    call per run of equal ones.

    Args:
        attention: the layer to stand for; its projections are used.
        windowed: whether segments are windows rather than frames.
    """

    def __init__(self, attention: Any, *, windowed: bool) -> None:
        super().__init__()
        self.qkv: nn.Linear = attention.qkv
        self.proj: nn.Linear = attention.proj
        self._heads: int = attention.num_heads
        self._scale: float = attention.scaling
        self._windowed = windowed
        weight = attention.qkv.weight
        kind, size = weight.dtype, weight.shape[1] // self._heads
        on_cpu: bool = weight.device.type == "cpu"
        self._flash = on_cpu and flash.attends(kind, size)
        if on_cpu:
            rotation.prepare(kind, size)
            flash.prepare(kind, size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        segments: Segments,
        **_: Any,
    ) -> torch.Tensor:
        """[rows, hidden] -> [rows, hidden]; ``position_embeddings`` are cosine and sine."""
        total, hidden = hidden_states.shape
        qkv = self.qkv(hidden_states).view(total, 3, self._heads, hidden // self._heads)
        rotate(qkv[:, :2], *position_embeddings)
        within = segments.windows if self._windowed else segments.frames
        if self._flash:
            query, key, value = qkv.unbind(1)
            attended = flash.attend(query, key, value, within.spans, self._scale)
        else:
            parts = [self._attend(qkv[run.start : run.stop], run) for run in within.runs]
            attended = torch.cat(parts)
        projected: torch.Tensor = self.proj(attended)
        return projected

    def _attend(self, qkv: torch.Tensor, run: Run) -> torch.Tensor:
        """[count * length, 3, heads, head] -> [count * length, hidden]."""
        parts = qkv.view(run.count, run.length, *qkv.shape[1:]).transpose(1, 3)
        query, key, value = parts.unbind(2)
        attended = functional.scaled_dot_product_attention(query, key, value, scale=self._scale)
        return attended.transpose(1, 2).reshape(run.count * run.length, -1)


def rotate(pairs: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    """Turns queries and keys by their positions, in place and in float32.

    Args:
        pairs: [rows, 2, heads, head].
        cosine: [rows, head], whose halves are equal; so is ``sine``.
    """
    rows, _, heads, head = pairs.shape
    if pairs.device.type == "cpu" and rotation.turns(pairs.dtype, head):
        angles = [angle.float().contiguous() for angle in (cosine, sine)]  # mostly as they are
        rotation.turn(pairs.view(rows, 2 * heads, head), *angles)
        return
    first, second = sine.float().chunk(2, dim=-1)
    signed = torch.cat((-first, second), dim=-1)[:, None, None]
    turned = pairs.float()  # itself, if it is of that type
    swapped = turned.roll(turned.shape[-1] // 2, -1)
    turned.mul_(cosine.float()[:, None, None]).addcmul_(swapped, signed)
    if turned is not pairs:
        pairs.copy_(turned)
