"""Checks of what a request says about its picture, before any of it reaches the model."""

from __future__ import annotations

import torch
from triptych_contract.errors import InvalidRequest

from triptych_worker.domain import EncodeInput

PIXELS = "pixel_values"


def only(item: EncodeInput, *names: str) -> None:
    """The item has ``pixel_values`` and no tensors beside ``names``."""
    if PIXELS not in item.tensors:
        raise InvalidRequest(f"a picture needs the tensor {PIXELS}; got {sorted(item.tensors)}")
    unknown = sorted(set(item.tensors) - {PIXELS, *names})
    if unknown:
        raise InvalidRequest(f"this model's vision part takes no tensor {', '.join(unknown)}")


def floating(name: str, tensor: torch.Tensor) -> None:
    """The tensor holds floating-point numbers."""
    if not tensor.is_floating_point():
        raise InvalidRequest(f"{name} must be floating point, as the processor made it")


def shape(name: str, tensor: torch.Tensor, expected: tuple[int | None, ...]) -> None:
    """The tensor has exactly these sizes; None is any."""
    sizes = tuple(tensor.shape)
    if len(sizes) != len(expected) or any(
        want is not None and size != want for size, want in zip(sizes, expected, strict=True)
    ):
        wanted = ", ".join("any" if want is None else str(want) for want in expected)
        raise InvalidRequest(f"{name} must be of shape [{wanted}], not {list(sizes)}")


def rows(item: EncodeInput, expected: int) -> None:
    """The item announces as many embedding rows as its picture has."""
    if item.visual_tokens != expected:
        raise InvalidRequest(
            f"the picture makes {expected} embedding rows but {item.visual_tokens} are announced:"
            " use the processor of this model"
        )
