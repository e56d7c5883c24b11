"""Shape of the keys and values of one sequence, on the wire and in the pool."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Keys and values of a sequence are one tensor [layers, 2, tokens, kv_heads, head_dim]."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    def shape(self, tokens: int) -> tuple[int, int, int, int, int]:
        """Shape for ``tokens`` tokens; the second dimension is keys, values."""
        return (self.layers, 2, tokens, self.kv_heads, self.head_dim)

    @property
    def bytes_per_token(self) -> int:
        """Size of one token's keys and values in all layers."""
        return self.layers * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize

    def describe(self) -> str:
        """What prefill and decode must agree on, as text for digests and ``Describe``."""
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"layers={self.layers},kv=2,tokens=*,kv_heads={self.kv_heads},"
            f"head_dim={self.head_dim},dtype={dtype}"
        )
