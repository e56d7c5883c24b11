"""Matrix products with weights laid out beforehand, for CPUs.

A decode step multiplies a few rows with every weight, and PyTorch's own product reads a row-major
weight badly then: with 8 rows the layout of oneDNN takes two thirds of the time, for a vocabulary's
projection half of it; with one row they are level. Sums are taken in another order, so results
differ within float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch.nn.functional import linear, pad

# Rows that the layout is made for; measured best over 1 to 300 of them.
_ROWS: Final = 8
# Four rows take no longer than one, two or three: fewer are filled up with zeros.
_LEAST_ROWS: Final = 4

Product = Callable[[torch.Tensor], torch.Tensor]


class PackedLinear(torch.nn.Module):
    """Stands where a ``torch.nn.Linear`` stood, and keeps only the packed weight."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        # Not a parameter: an opaque tensor that can be neither moved nor saved.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        self._bias = bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The product for ``rows`` [..., in], [..., out]."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self._bias, "none", [], ""
        )
        return output


def packs(weight: torch.Tensor) -> bool:
    """Whether packing was found to pay for weights like this one."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # left so there
    )


def pack_linears(module: torch.nn.Module) -> None:
    """Replaces every linear layer inside ``module`` whose weight packs."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear) and packs(child.weight):
            setattr(module, name, PackedLinear(child.weight, child.bias))
        else:
            pack_linears(child)


def product(weight: torch.Tensor) -> Product:
    """The product with ``weight`` [out, in], packed if that pays."""
    if not packs(weight):
        return lambda rows: linear(rows, weight)
    packed = PackedLinear(weight, None)
    return lambda rows: packed(pad(rows, (0, 0, 0, missing_rows(weight, len(rows)))))[: len(rows)]


def missing_rows(weight: torch.Tensor, rows: int) -> int:
    """How many rows of zeros to add to ``rows``, for a model with weights like this one."""
    return max(0, _LEAST_ROWS - rows) if packs(weight) else 0
