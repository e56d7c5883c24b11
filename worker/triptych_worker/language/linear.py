"""Matrix products with what follows them done in the same pass over memory.

On a CPU the weight is laid out beforehand as oneDNN's kernels read it: with 8 rows that takes two
thirds of the time of PyTorch's own product, for a vocabulary's projection half of it. Sums are
taken in another order, so results differ within rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch.nn.functional import linear, pad, silu

from triptych_worker.packing import packs

# Rows that the layout is made for; measured best over 1 to 300 of them.
_ROWS: Final = 8
# Four rows take no longer than one, two or three: fewer are filled up with zeros.
_LEAST_ROWS: Final = 4


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
    """By oneDNN; keeps only the packed weight."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        # Not a parameter: an opaque tensor that can be neither moved nor saved.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        self._bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._unary(rows, "none")

    def silu(self, rows: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._unary(rows, "swish")

    def times(self, rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._binary(rows, factor, "mul")

    def plus(self, rows: torch.Tensor, addend: torch.Tensor) -> torch.Tensor:
        """See Projection."""
        return self._binary(rows, addend, "add")

    def _unary(self, rows: torch.Tensor, after: str) -> torch.Tensor:
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self._bias, after, [], ""
        )
        return output

    def _binary(self, rows: torch.Tensor, other: torch.Tensor, after: str) -> torch.Tensor:
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            rows, other, self._packed, self._bias, after
        )
        return output


def projection(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Projection:
    """The product with ``weight`` [out, in], packed if that pays."""
    kind = PackedProjection if packs(weight.dtype, weight.device) else PlainProjection
    return kind(weight, bias)


def joined(*layers: torch.nn.Linear) -> Projection:
    """Layers with the same input as one; their outputs lie side by side."""
    weights: list[torch.Tensor] = [layer.weight for layer in layers]
    biases: list[torch.Tensor] = [layer.bias for layer in layers]
    return projection(torch.cat(weights), None if biases[0] is None else torch.cat(biases))


def filled(rows: torch.Tensor) -> torch.Tensor:
    """``rows`` [n, width], with zeros below where so few rows are not worth it."""
    missing = _LEAST_ROWS - len(rows)
    return pad(rows, (0, 0, 0, missing)) if missing > 0 and packs(rows.dtype, rows.device) else rows


def filled_up(index: Sequence[int], weight: torch.Tensor) -> list[int]:
    """Indices of rows, with the first row's repeated up to as many as ``filled`` would make."""
    missing = _LEAST_ROWS - len(index) if packs(weight.dtype, weight.device) else 0
    return [*index, *[index[0]] * missing]
