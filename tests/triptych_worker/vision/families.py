"""A tiny model of every family: transformers' own whole model beside our vision part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tiny_models import build
from transformers import AutoModelForImageTextToText
from triptych_worker.domain import EncodeInput, VisionModel
from triptych_worker.vision import load_vision

# Pictures in units of visual tokens: whole windows, cut windows, a single cell, equal ones.
QWEN_GRIDS = ((1, 8, 8), (1, 2, 2), (1, 6, 10), (1, 8, 8), (1, 10, 6), (3, 4, 6))
# Tiles of pictures.
TILES = (5, 1, 3, 5)


@dataclass(frozen=True)
class Family:
    name: str
    folder: Path
    whole: Any
    vision: VisionModel

    def reference(self, item: EncodeInput) -> torch.Tensor:
        """What transformers makes of one picture alone."""
        if self.name == "smolvlm":
            tensors = {name: tensor.unsqueeze(0) for name, tensor in item.tensors.items()}
        else:
            tensors = {**item.tensors, "image_grid_thw": torch.tensor([item.grid])}
        with torch.inference_mode():
            out = self.whole.get_image_features(**tensors)
        deepstack = [level[0] for level in getattr(out, "deepstack_features", None) or ()]
        return torch.cat([out.pooler_output[0], *deepstack], dim=-1)


def pictures(family: str) -> list[EncodeInput]:
    generator = torch.Generator().manual_seed(7)
    if family == "smolvlm":
        return [tiles(torch.randn(count, 3, 56, 56, generator=generator)) for count in TILES]
    patch = {"qwen3_vl": 16}.get(family, 14)
    return [
        patches(torch.randn(t * h * w, 3 * 2 * patch * patch, generator=generator), (t, h, w))
        for t, h, w in QWEN_GRIDS
    ]


def patches(pixels: torch.Tensor, grid: Sequence[int]) -> EncodeInput:
    return EncodeInput(bytes(32), {"pixel_values": pixels}, tuple(grid), len(pixels) // 4)


def tiles(pixels: torch.Tensor, rows: int | None = None, **more: torch.Tensor) -> EncodeInput:
    tensors: Mapping[str, torch.Tensor] = {"pixel_values": pixels, **more}
    return EncodeInput(bytes(32), tensors, (0, 0), 4 * len(pixels) if rows is None else rows)


def load_family(name: str, path: Path) -> Family:
    folder = build(name, path)
    whole = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval().model
    return Family(
        name, folder, whole, load_vision(folder, None, torch.float32, torch.device("cpu"))
    )
