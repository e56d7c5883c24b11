"""The vision part of SmolVLM and Idefics3: tiles of one size through a vision transformer, then a
connector that merges neighbouring patches into rows of the language model's width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from triptych_contract.errors import InvalidRequest

from triptych_worker.domain import EncodeInput
from triptych_worker.vision import inputs
from triptych_worker.vision.segments import chunks

_MASK = "pixel_attention_mask"


@dataclass(frozen=True, slots=True)
class _Tiles:
    """The tiles of one picture that hold something."""

    item: int
    pixels: torch.Tensor  # [tiles, channels, side, side]
    patches: torch.Tensor | None  # [tiles, rows, columns] which are real; None: all

    @property
    def kind(self) -> tuple[int, bool]:
        """Tiles of one kind can share a pass without changing each other's result."""
        return self.pixels.shape[-1], self.patches is not None


class SmolVLMVision:
    """A ``VisionModel`` over transformers' vision model and connector of the two families.

    Args:
        vision_model: with its weights, on its device.
        connector: likewise.
        weights_digest: of the loaded weights.
        batch_patches: patches of one pass through the model; a larger picture is a pass alone.
    """

    def __init__(
        self, vision_model: Any, connector: Any, weights_digest: str, batch_patches: int
    ) -> None:
        config = vision_model.config
        self.weights_digest = weights_digest
        self.dtype: torch.dtype = vision_model.dtype
        self.width: int = connector.modality_projection.proj.out_features
        self.pass_tokens = batch_patches // connector.scale_factor**2
        self._vision_model = vision_model
        self._connector: nn.Module = connector
        self._batch_patches = batch_patches
        self._channels: int = config.num_channels
        self._patch: int = config.patch_size
        self._merge: int = connector.scale_factor

    def encode(self, items: Sequence[EncodeInput]) -> list[torch.Tensor]:
        """One embedding per item; see ``domain.VisionModel``."""
        pictures = [self._tiles(index, item) for index, item in enumerate(items)]
        results: dict[int, torch.Tensor] = {}
        for kind in sorted({picture.kind for picture in pictures}):
            alike = [picture for picture in pictures if picture.kind == kind]
            sizes = [len(picture.pixels) * (kind[0] // self._patch) ** 2 for picture in alike]
            for chunk in chunks(sizes, self._batch_patches):
                results.update(self._forward(alike[chunk.start : chunk.stop]))
        return [results[index] for index in range(len(items))]

    def _tiles(self, index: int, item: EncodeInput) -> _Tiles:
        pixels = self._checked(item)
        # The processor pads with tiles of zeros; a picture of nothing else keeps its first one.
        real = pixels.flatten(1).ne(0).any(dim=1)
        real[0] |= ~real.any()
        pixels = pixels[real]
        inputs.rows(item, len(pixels) * (pixels.shape[-1] // self._patch // self._merge) ** 2)
        mask = item.tensors.get(_MASK)
        return _Tiles(index, pixels, None if mask is None else self._real_patches(mask[real]))

    def _checked(self, item: EncodeInput) -> torch.Tensor:
        inputs.only(item, _MASK)
        pixels = item.tensors[inputs.PIXELS]
        inputs.floating(inputs.PIXELS, pixels)
        unit = self._patch * self._merge
        side = max(pixels.shape[-1] // unit, 1) * unit if pixels.ndim else unit
        inputs.shape(inputs.PIXELS, pixels, (None, self._channels, side, side))
        if not len(pixels):
            raise InvalidRequest("a picture needs at least one tile")
        if _MASK in item.tensors:
            inputs.shape(_MASK, item.tensors[_MASK], (len(pixels), side, side))
        return pixels

    def _real_patches(self, mask: torch.Tensor) -> torch.Tensor | None:
        """[tiles, side, side] -> [tiles, rows, columns]: a patch is real if one pixel of it is."""
        split = mask.unfold(1, self._patch, self._patch).unfold(2, self._patch, self._patch)
        patches = split.ne(0).any(dim=-1).any(dim=-1)
        return None if bool(patches.all()) else patches

    @torch.inference_mode()
    def _forward(self, pictures: Sequence[_Tiles]) -> Mapping[int, torch.Tensor]:
        device = self._vision_model.device
        pixels = torch.cat([picture.pixels.to(device, self.dtype) for picture in pictures])
        masks = [picture.patches for picture in pictures if picture.patches is not None]
        hidden = self._vision_model(
            pixel_values=pixels,
            patch_attention_mask=torch.cat(masks).to(device) if masks else None,
        ).last_hidden_state
        rows = self._connector(hidden).to("cpu", self.dtype)
        parts = rows.split([len(picture.pixels) for picture in pictures])
        return {
            picture.item: part.flatten(0, 1) for picture, part in zip(pictures, parts, strict=True)
        }
