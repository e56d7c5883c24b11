"""The keys and values of all running sequences, allocated up front."""

from __future__ import annotations

import torch
from triptych_contract.errors import InvalidRequest

from triptych_worker.language.layout import KvLayout


class KvPool:
    """One tensor of ``tokens`` places; the scheduler says which range belongs to which sequence.

    A range is written and read by the owner of its sequence alone, so no lock is needed. The tokens
    of one head lie next to each other, [layers, 2, kv_heads, tokens, head_dim]: attention reads a
    head at a time, and reads it one and a half times as fast as from the layout of the wire.
    """

    def __init__(self, layout: KvLayout, tokens: int, device: torch.device) -> None:
        self.layout = layout
        self.tokens = tokens
        shape = (layout.layers, 2, layout.kv_heads, tokens, layout.head_dim)
        self.tensor = torch.zeros(shape, dtype=layout.dtype, device=device)

    def heads(self, start: int, length: int) -> torch.Tensor:
        """The range itself, [layers, 2, kv_heads, length, head_dim], not a copy."""
        return self.tensor[:, :, :, start : start + length]

    def view(self, start: int, length: int) -> torch.Tensor:
        """The range as it travels, [layers, 2, length, kv_heads, head_dim], not a copy."""
        return self.heads(start, length).transpose(2, 3)

    def write(self, start: int, kv: torch.Tensor) -> None:
        """Copies ``kv`` [layers, 2, length, kv_heads, head_dim] in at ``start``.

        Raises:
            InvalidRequest: shape or dtype is not this pool's.
        """
        expected = self.layout.shape(kv.shape[2] if kv.ndim == 5 else 0)
        if tuple(kv.shape) != expected or kv.dtype != self.layout.dtype:
            raise InvalidRequest(
                f"keys and values of shape {tuple(kv.shape)} and {kv.dtype} do not fit the layout"
                f" {self.layout.describe()}; use a prefill tier of the same model and dtype"
            )
        with torch.inference_mode():
            self.view(start, kv.shape[2]).copy_(kv)
