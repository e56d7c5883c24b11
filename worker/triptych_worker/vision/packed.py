"""On a CPU: weights laid out once as our kernels read them, activations fused.

Results are those of the layers replaced to within rounding; fused ones are rounded less often.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn
from transformers.activations import SiLUActivation

from triptych_worker.kernels import norm as kernels
from triptych_worker.kernels.product import After, Weight
from triptych_worker.norms import rms_norm

_SILU: Final = (nn.SiLU, SiLUActivation)


def pack(module: nn.Module) -> None:
    """Replaces layers inside ``module`` in place; weights are laid out anew, not kept twice."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child))
        elif hasattr(child, "variance_epsilon"):
            setattr(module, name, FusedRmsNorm(child))
        elif hasattr(child, "gate_proj") and isinstance(child.act_fn, _SILU):
            setattr(module, name, PackedGatedMlp(child))
        else:
            pack(child)


class PackedLinear(nn.Module):
    """A linear layer over a weight that is laid out for this processor."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._weight = Weight(linear.weight, linear.bias)

    def forward(self, rows: torch.Tensor, after: After = After.NOTHING) -> torch.Tensor:
        """[..., in] -> [..., out], then SiLU if so told."""
        product = self._weight.times(rows.reshape(-1, rows.shape[-1]), after)
        return product.view(*rows.shape[:-1], self._weight.outputs)

    def times(self, rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out], times ``factor`` [..., out]."""
        factors = factor.reshape(-1, factor.shape[-1])
        product = self._weight.times(rows.reshape(-1, rows.shape[-1]), After.TIMES, factors)
        return product.view(factor.shape)


class PackedGatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x)) in three passes."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self._gate = PackedLinear(mlp.gate_proj)
        self._up = PackedLinear(mlp.up_proj)
        self._down = PackedLinear(mlp.down_proj)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] -> [rows, hidden]."""
        down: torch.Tensor = self._down(self._up.times(rows, self._gate(rows, After.SILU)))
        return down


class FusedRmsNorm(nn.Module):
    """Root-mean-square normalisation in two passes."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight = norm.weight
        self._epsilon: float = norm.variance_epsilon
        kernels.prepare(self.weight.dtype)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., hidden] -> [..., hidden]."""
        return rms_norm(rows, self.weight, self._epsilon)
