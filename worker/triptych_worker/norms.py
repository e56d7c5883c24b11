"""Normalisation that both parts of a model use."""

from __future__ import annotations

import torch
from torch.nn import functional

from triptych_worker.kernels import norm


def rms_norm(rows: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Root-mean-square normalisation of the last dimension of ``rows`` [..., width], in float32.

    On a CPU PyTorch's own makes more temporaries, and takes two to ten times as long for a
    picture's rows.
    """
    if not rows.is_cpu:
        return functional.rms_norm(rows, weight.shape, weight, epsilon)
    if norm.normalises(rows.dtype) and weight.dtype is rows.dtype:
        return norm.normalised(rows.contiguous(), weight, epsilon)
    exact = rows.float()  # itself, if it is of that type
    length: torch.Tensor = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
    scale = length.square_().div_(rows.shape[-1]).add_(epsilon).rsqrt_()
    return (exact * scale).to(rows.dtype).mul_(weight)
