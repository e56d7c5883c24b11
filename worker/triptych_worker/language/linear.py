"""Matrix products with what follows them done in the same pass over memory.

On a CPU by kernels of our own, over a weight that is laid out for them beforehand. Sums are taken
in another order than PyTorch's, so results differ within rounding.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn.functional import linear, silu

from triptych_worker.kernels.product import After, Weight
from triptych_worker.packing import packs


class Projection(Protocol):
    """A linear layer, [n, in] -> [n, out]."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """The product."""
        ...

    def silu(self, rows: torch.Tensor) -> torch.Tensor:
        """The product, then SiLU."""
        ...

    def times(self, rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """The product times ``factor`` [n, out]."""
        ...

    def plus(self, rows: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
        """The product plus ``addend`` [n, out]."""
        ...


class PlainProjection:
    """By PyTorch's own kernels, on any device and type."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return linear(rows, self._weight, self._bias)

    def silu(self, rows: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return silu(self(rows))

    def times(self, rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self(rows) * factor

    def plus(self, rows: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return addend + self(rows)


class PackedProjection:
    """By the kernels of this processor; keeps only the weight as they read it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = Weight(weight, bias)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._weight.times(rows)

    def silu(self, rows: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._weight.times(rows, After.SILU)

    def times(self, rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._weight.times(rows, After.TIMES, factor)

    def plus(self, rows: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._weight.times(rows, After.PLUS, addend)


def projection(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Projection:
    """The product with ``weight`` [out, in], packed if that pays."""
    kind = PackedProjection if packs(weight.dtype, weight.device) else PlainProjection
    return kind(weight, bias)


def joined(*layers: torch.nn.Linear) -> Projection:
    """Layers with the same input as one; their outputs lie side by side."""
    weights: list[torch.Tensor] = [layer.weight for layer in layers]
    biases: list[torch.Tensor] = [layer.bias for layer in layers]
    return projection(torch.cat(weights), None if biases[0] is None else torch.cat(biases))
