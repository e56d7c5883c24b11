"""From a picture's pixels to what its encoder reads, and what stands for it in the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from triptych_contract.errors import InvalidModel, InvalidRequest

from triptych_gateway.media.decode import Pixels

_DTYPE_NAMES: Final = {
    torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int64: "int64", torch.uint8: "uint8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """What one picture takes in a prompt: token ids, of which ``runs`` (offset, length) are its
    embedding's rows in order, and the family's grid."""

    token_ids: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]
    grid: tuple[int, ...]

    @property
    def visual_tokens(self) -> int:
        """Rows of the embedding."""
        return sum(length for _, length in self.runs)


@dataclass(frozen=True, slots=True)
class Processed:
    """One picture, ready to be encoded: contiguous CPU tensors by the vision part's argument."""

    tensors: Mapping[str, torch.Tensor]
    layout: Layout

    @property
    def size_bytes(self) -> int:
        """Memory that the tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


class Family(Protocol):
    """What differs between model families once their image processor has run."""

    arguments: Mapping[str, Any]  # of the image processor's call

    def tensors(self, features: Mapping[str, Any], image_processor: Any) -> dict[str, torch.Tensor]:
        """What the vision part takes, of one picture."""
        ...

    def grid(self, features: Mapping[str, Any]) -> tuple[int, ...]:
        """The picture's grid, as its language model wants it."""
        ...


class QwenVL:
    """Qwen2-VL, Qwen2.5-VL and Qwen3-VL: one patch sequence, a grid of (time, height, width)."""

    arguments: Mapping[str, Any] = {}

    def tensors(self, features: Mapping[str, Any], image_processor: Any) -> dict[str, torch.Tensor]:
        """Patches [patches, channels * patch * patch]: the processor repeats a still picture for
        each frame of a patch, which the encoder can do without being sent the bytes."""
        patches = features["pixel_values"]
        frames = image_processor.temporal_patch_size
        side = image_processor.patch_size
        still = patches.view(len(patches), -1, frames, side * side)[:, :, 0]
        return {"pixel_values": still.flatten(1)}

    def grid(self, features: Mapping[str, Any]) -> tuple[int, ...]:
        """(t, h, w) in patches."""
        return tuple(int(side) for side in features["image_grid_thw"][0])


class SmolVLM:
    """SmolVLM and Idefics3: tiles and the whole picture, each a run of its own."""

    arguments: Mapping[str, Any] = {"return_row_col_info": True}

    def tensors(self, features: Mapping[str, Any], image_processor: Any) -> dict[str, torch.Tensor]:
        """Tiles [tiles, channels, side, side]. Alone, a picture has no padding to mask."""
        del image_processor
        return {"pixel_values": features["pixel_values"][0]}

    def grid(self, features: Mapping[str, Any]) -> tuple[int, ...]:
        """None: positions are plain, and the runs tell where the tiles are."""
        return ()


FAMILIES: Final[Mapping[str, Family]] = {
    "qwen2_vl": QwenVL(),
    "qwen2_5_vl": QwenVL(),
    "qwen3_vl": QwenVL(),
    "smolvlm": SmolVLM(),
    "idefics3": SmolVLM(),
}


def family_of(model_type: str) -> Family:
    """The adapter for ``config.json``'s ``model_type``.

    Raises:
        InvalidModel: no such family.
    """
    if model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise InvalidModel(f"model type {model_type!r} is not served; there is: {known}")
    return FAMILIES[model_type]


class PictureProcessor:
    """Runs the model's own image processor on one picture at a time. Thread-safe: it only reads.

    Args:
        family: what differs between families.
        processor: transformers' processor of the model.
    """

    def __init__(self, family: Family, processor: Any) -> None:
        self._family = family
        self._processor = processor
        self._image_token: int = processor.image_token_id

    def process(self, pixels: Pixels) -> Processed:
        """The picture's tensors and layout. Takes milliseconds: call it off the event loop.

        Raises:
            InvalidRequest: the picture's shape is one that the model cannot read.
        """
        flat = torch.frombuffer(bytearray(pixels.rgb), dtype=torch.uint8)
        image = flat.view(pixels.height, pixels.width, 3)
        try:
            features = self._processor.image_processor(
                images=[image.numpy()],
                return_tensors="pt",
                input_data_format="channels_last",
                **self._family.arguments,
            )
        except ValueError as error:
            raise InvalidRequest(
                f"the model cannot read an image of {pixels.width} x {pixels.height} pixels"
            ) from error
        text = self._processor.replace_image_token(features, image_idx=0)
        tensors = self._family.tensors(features, self._processor.image_processor)
        return Processed(
            tensors={name: tensor.contiguous() for name, tensor in tensors.items()},
            layout=self._layout(text, self._family.grid(features)),
        )

    def _layout(self, text: str, grid: tuple[int, ...]) -> Layout:
        backend = self._processor.tokenizer.backend_tokenizer
        ids = tuple(backend.encode(text, add_special_tokens=False).ids)
        return Layout(ids, runs_of(ids, self._image_token), grid)


def runs_of(token_ids: Sequence[int], token: int) -> tuple[tuple[int, int], ...]:
    """(offset, length) of each unbroken run of ``token``."""
    runs: list[tuple[int, int]] = []
    for index, one in enumerate(token_ids):
        if one != token:
            continue
        if runs and sum(runs[-1]) == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return tuple(runs)


def dtype_name(tensor: torch.Tensor) -> str:
    """The contract's name of the element type.

    Raises:
        InvalidModel: the image processor produced a type that does not travel.
    """
    if tensor.dtype not in _DTYPE_NAMES:
        raise InvalidModel(f"the image processor answers tensors of {tensor.dtype}")
    return _DTYPE_NAMES[tensor.dtype]
