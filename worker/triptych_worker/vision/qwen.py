"""The vision part of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: pictures of any size, packed into one
sequence of patches, with attention inside frames or inside windows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from triptych_contract.errors import InvalidRequest

from triptych_worker.domain import EncodeInput
from triptych_worker.vision import inputs
from triptych_worker.vision.layers import Segments, Within, specialise
from triptych_worker.vision.segments import chunks, windows


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in patches, but for ``window``, which is in merged cells and 0 without windows."""

    merge: int
    window: int
    frames: int  # in one patch
    frame_values: int  # numbers in one frame of a patch
    channels: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of one picture go. Depends on its grid only."""

    grid: tuple[int, int, int]
    positions: torch.Tensor  # [patches, 2] row and column of each patch, in the processor's order
    order: torch.Tensor | None  # [cells] cell that each place of the windowed order takes
    window_lengths: tuple[int, ...]  # patches

    @property
    def patches(self) -> int:
        """Rows that the picture has before merging."""
        time, height, width = self.grid
        return time * height * width

    @property
    def frame_lengths(self) -> tuple[int, ...]:
        """Patches of each frame."""
        time, height, width = self.grid
        return (height * width,) * time


class QwenVision:
    """A ``VisionModel`` over transformers' vision module of one of the three families.

    Args:
        module: the vision module with its weights, on its device.
        weights_digest: of the loaded weights.
        batch_patches: patches of one pass through the module; a larger picture is a pass alone.
    """

    def __init__(self, module: Any, weights_digest: str, batch_patches: int) -> None:
        config = module.config
        side = config.patch_size
        merge = config.spatial_merge_size
        windowed = hasattr(config, "window_size")
        self.weights_digest = weights_digest
        self.dtype: torch.dtype = module.dtype
        self.width = width(config)
        self.pass_tokens = batch_patches // merge**2
        self._module = module
        self._batch_patches = batch_patches
        self._geometry = Geometry(
            merge=merge,
            window=config.window_size // merge // side if windowed else 0,
            frames=config.temporal_patch_size,
            frame_values=config.in_channels * side * side,
            channels=config.in_channels,
        )
        full = set(config.fullatt_block_indexes) if windowed else set(range(config.depth))
        specialise(module, full)

    def encode(self, items: Sequence[EncodeInput]) -> list[torch.Tensor]:
        """One embedding per item; see ``domain.VisionModel``."""
        layouts = [_layout(self._checked(item), self._geometry) for item in items]
        # Equal frames side by side share an attention call.
        order = sorted(range(len(items)), key=lambda i: layouts[i].grid)
        results: dict[int, torch.Tensor] = {}
        for chunk in chunks([layouts[i].patches for i in order], self._batch_patches):
            chosen = [order[place] for place in chunk]
            pixels = [items[i].tensors[inputs.PIXELS] for i in chosen]
            embeddings = self._forward(pixels, [layouts[i] for i in chosen])
            results.update(zip(chosen, embeddings, strict=True))
        return [results[i] for i in range(len(items))]

    def _checked(self, item: EncodeInput) -> tuple[int, int, int]:
        merge = self._geometry.merge
        inputs.only(item)
        if (
            len(item.grid) != 3
            or min(item.grid) < 1
            or item.grid[1] % merge
            or item.grid[2] % merge
        ):
            raise InvalidRequest(
                f"grid must be (t, h, w) in patches, h and w multiples of {merge}; not {item.grid}"
            )
        time, height, width = item.grid
        patches = time * height * width
        pixels = item.tensors[inputs.PIXELS]
        inputs.floating(inputs.PIXELS, pixels)
        values = self._geometry.frame_values
        if time > 1 or pixels.shape[-1:] != (values,):  # else a still picture, sent as one frame
            values *= self._geometry.frames
        inputs.shape(inputs.PIXELS, pixels, (patches, values))
        inputs.rows(item, patches // merge**2)
        return time, height, width

    @torch.inference_mode()
    def _forward(
        self, pixels: Sequence[torch.Tensor], layouts: Sequence[Layout]
    ) -> tuple[torch.Tensor, ...]:
        device = self._module.device
        packed = torch.cat([self._whole(part.to(device, self.dtype)) for part in pixels])
        out = self._module(
            packed,
            grid_thw=torch.tensor([layout.grid for layout in layouts], device=device),
            position_ids=torch.cat([layout.positions for layout in layouts]).to(device),
            **_windowed(layouts, device),
            segments=_segments(layouts),
        )
        levels = (out.pooler_output, *(getattr(out, "deepstack_features", None) or ()))
        rows = torch.cat(levels, dim=-1).to("cpu", self.dtype)
        cells = [layout.patches // self._geometry.merge**2 for layout in layouts]
        return torch.split(rows, cells)

    def _whole(self, patches: torch.Tensor) -> torch.Tensor:
        """Patches with all their frames; a still picture's single frame is every one."""
        geometry = self._geometry
        if patches.shape[1] != geometry.frame_values or geometry.frames == 1:
            return patches
        frame = patches.view(len(patches), geometry.channels, 1, -1)
        return frame.expand(-1, -1, geometry.frames, -1).reshape(len(patches), -1)


def width(config: Any) -> int:
    """Size of an embedding row: what is merged, then each deepstack level."""
    merged: int = getattr(config, "out_hidden_size", config.hidden_size)
    return merged * (1 + len(getattr(config, "deepstack_visual_indexes", ())))


def _segments(layouts: Sequence[Layout]) -> Segments:
    return Segments(
        frames=Within(length for layout in layouts for length in layout.frame_lengths),
        windows=Within(length for layout in layouts for length in layout.window_lengths),
    )


def _windowed(layouts: Sequence[Layout], device: torch.device) -> dict[str, torch.Tensor]:
    """The order of cells by windows, for the family that has them.

    The module wants the windows' bounds beside it and hands them to its blocks, which attend by
    ``Segments`` instead.
    """
    shifted = []
    cells = 0
    for layout in layouts:
        if layout.order is not None:
            shifted.append(layout.order + cells)
            cells += len(layout.order)
    if not shifted:
        return {}
    bounds = torch.zeros(1, dtype=torch.int32, device=device)
    return {"window_index": torch.cat(shifted).to(device), "cu_window_seqlens": bounds}


@lru_cache(maxsize=64)
def _layout(grid: tuple[int, int, int], geometry: Geometry) -> Layout:
    time, height, width = grid
    merge = geometry.merge
    rows, columns = height // merge, width // merge
    # The processor lists patches cell by cell, and inside a cell row by row.
    row = torch.arange(height).view(rows, 1, merge, 1).expand(rows, columns, merge, merge)
    column = torch.arange(width).view(1, columns, 1, merge).expand(rows, columns, merge, merge)
    positions = torch.stack([row.flatten(), column.flatten()], dim=-1).repeat(time, 1)
    if not geometry.window:
        return Layout(grid, positions, None, ())
    frame = windows(rows, columns, geometry.window)
    order = torch.tensor([cell for window in frame for cell in window])
    shifts = torch.arange(time).unsqueeze(1) * (rows * columns)
    lengths = tuple(len(window) * merge**2 for window in frame) * time
    return Layout(grid, positions, (order + shifts).flatten(), lengths)
