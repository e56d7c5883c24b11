"""On a CPU: weights laid out once as oneDNN's kernels read them, activations fused.

Results are those of the layers replaced to within rounding; fused ones are rounded less often.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn
from transformers.activations import SiLUActivation

from triptych_worker.norms import rms_norm

_SILU: Final = (nn.SiLU, SiLUActivation)
# Rows that the layout is chosen for; any number works.
_ROWS: Final = 1024


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
    """A linear layer over a packed weight."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)
        self._bias = linear.bias

    def forward(self, rows: torch.Tensor, activation: str = "none") -> torch.Tensor:
        """[..., in] -> [..., out], then ``activation`` as oneDNN names it."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._weight, self._bias, activation, [], ""
        )
        return product

    def times(self, rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out], times ``factor`` [..., out]."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            rows, factor, self._weight, self._bias, "mul"
        )
        return product


class PackedGatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x)) in three passes."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self._gate = PackedLinear(mlp.gate_proj)
        self._up = PackedLinear(mlp.up_proj)
        self._down = PackedLinear(mlp.down_proj)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] -> [rows, hidden]."""
        down: torch.Tensor = self._down(self._up.times(rows, self._gate(rows, "swish")))
        return down


class FusedRmsNorm(nn.Module):
    """Root-mean-square normalisation in two passes."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight = norm.weight
        self._epsilon: float = norm.variance_epsilon

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., hidden] -> [..., hidden]."""
        return rms_norm(rows, self.weight, self._epsilon)
