"""Which weights are laid out once as the kernels of this processor read them."""

from __future__ import annotations

import torch

from triptych_worker.kernels.product import multiplies


def packs(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether there are kernels of our own for products of this type on this device."""
    return device.type == "cpu" and multiplies(dtype)
