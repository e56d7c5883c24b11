"""Model folders: which family one holds, whether it is complete, and the weights of one part.

Checkpoints name their tensors in the style of the hub or in that of newer transformers; both map to
the same canonical names here, so a part loads and digests alike whichever wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import torch
from blake3 import blake3
from safetensors import SafetensorError, safe_open
from triptych_contract.errors import InvalidModel

_CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


class Family(StrEnum):
    """Architectures that are served."""

    QWEN2_VL = "qwen2_vl"
    QWEN2_5_VL = "qwen2_5_vl"
    QWEN3_VL = "qwen3_vl"
    SMOLVLM = "smolvlm"


class Part(StrEnum):
    """What a tier loads of a model."""

    VISION = "vision"
    LANGUAGE = "language"


_FAMILIES: Final[Mapping[str, Family]] = {
    "qwen2_vl": Family.QWEN2_VL,
    "qwen2_5_vl": Family.QWEN2_5_VL,
    "qwen3_vl": Family.QWEN3_VL,
    "smolvlm": Family.SMOLVLM,
    "idefics3": Family.SMOLVLM,
}

# Files that a part needs beside configuration and weights.
_REQUIRED: Final[Mapping[Part, tuple[str, ...]]] = {
    Part.VISION: (),
    Part.LANGUAGE: ("tokenizer.json",),
}


@dataclass(frozen=True, slots=True)
class Naming:
    """Tensors whose name starts with ``stored`` belong to ``part`` as ``canonical`` + the rest."""

    stored: str
    part: Part
    canonical: str = ""


# The first rule that matches wins, so longer prefixes come first.
_QWEN: Final = (
    Naming("model.visual.", Part.VISION),
    Naming("visual.", Part.VISION),
    Naming("model.language_model.", Part.LANGUAGE),
    Naming("lm_head.", Part.LANGUAGE, "lm_head."),
    Naming("model.", Part.LANGUAGE),
)
_SMOLVLM: Final = (
    Naming("model.vision_model.", Part.VISION, "vision_model."),
    Naming("model.connector.", Part.VISION, "connector."),
    Naming("model.text_model.", Part.LANGUAGE),
    Naming("lm_head.", Part.LANGUAGE, "lm_head."),
)
_NAMINGS: Final[Mapping[Family, Sequence[Naming]]] = {
    Family.QWEN2_VL: _QWEN,
    Family.QWEN2_5_VL: _QWEN,
    Family.QWEN3_VL: _QWEN,
    Family.SMOLVLM: _SMOLVLM,
}


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder that was found complete for ``part``."""

    path: Path
    family: Family
    part: Part
    shards: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class PartWeights:
    """Tensors by canonical name, and the hexadecimal BLAKE3 digest of what the files hold."""

    tensors: Mapping[str, torch.Tensor]
    digest: str


def open_folder(path: Path, part: Part) -> ModelFolder:
    """Checks that ``path`` holds all that ``part`` needs. Reads no weights.

    Raises:
        InvalidModel: naming the file that is missing or damaged, or the unknown family.
    """
    if not path.is_dir():
        raise InvalidModel(f"model folder {path} does not exist; check the model's source")
    family = _family(path)
    for name in _REQUIRED[part]:
        _require(path / name)
    return ModelFolder(path, family, part, _shards(path))


def load_part(folder: ModelFolder, dtype: torch.dtype) -> PartWeights:
    """Reads the tensors of the folder's part, converted to ``dtype``, into memory of their own.

    The digest covers names, types, shapes and bytes as stored, so it does not depend on ``dtype``.

    Raises:
        InvalidModel: a weight file is damaged, or holds nothing of this part.
    """
    tensors: dict[str, torch.Tensor] = {}
    hasher = blake3()
    for name, tensor in _stored(folder):
        _digest(hasher, name, tensor)
        tensors[name] = tensor.to(dtype, copy=True) if tensor.is_floating_point() else tensor
    if not tensors:
        raise InvalidModel(
            f"model folder {folder.path} holds no {folder.part} weights of a {folder.family} model;"
            " check that config.json belongs to these weights"
        )
    return PartWeights(tensors, hasher.hexdigest())


def read_json(path: Path) -> Mapping[str, object]:
    """The JSON object in ``path``.

    Raises:
        InvalidModel: the file is missing or is not a JSON object.
    """
    _require(path)
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidModel(f"{path} is not valid JSON; download the model again") from error
    if not isinstance(value, dict):
        raise InvalidModel(f"{path} is not a JSON object; download the model again")
    return value


def _family(path: Path) -> Family:
    model_type = read_json(path / _CONFIG).get("model_type")
    family = _FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise InvalidModel(
            f"{path / _CONFIG} says model_type {model_type!r}; served are: {', '.join(_FAMILIES)}"
        )
    return family


def _require(path: Path) -> None:
    if not path.is_file():
        raise InvalidModel(
            f"model folder {path.parent} is missing {path.name}; copy the file there or download"
            " the model again"
        )


def _shards(path: Path) -> tuple[Path, ...]:
    if not (path / _INDEX).is_file():
        _require(path / _WEIGHTS)
        return (path / _WEIGHTS,)
    weight_map = read_json(path / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidModel(f"{path / _INDEX} has no weight_map; download the model again")
    shards = tuple(path / name for name in sorted({str(name) for name in weight_map.values()}))
    for shard in shards:
        _require(shard)
    return shards


def _stored(folder: ModelFolder) -> Iterator[tuple[str, torch.Tensor]]:
    """The part's tensors as stored, sorted by canonical name."""
    with ExitStack() as stack:
        found = {}
        for shard in folder.shards:
            try:
                file = stack.enter_context(safe_open(shard, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise InvalidModel(
                    f"{shard} is damaged ({error}); download the file again"
                ) from error
            for stored in file.keys():  # noqa: SIM118 - not a mapping, it has no iterator
                canonical = _canonical(stored, folder)
                if canonical is not None:
                    found[canonical] = (file, stored)
        for canonical in sorted(found):
            file, stored = found[canonical]
            yield canonical, file.get_tensor(stored)


def _canonical(stored: str, folder: ModelFolder) -> str | None:
    """The name of a stored tensor within the folder's part; None if it is of another part."""
    for naming in _NAMINGS[folder.family]:
        if stored.startswith(naming.stored):
            if naming.part is not folder.part:
                return None
            return naming.canonical + stored.removeprefix(naming.stored)
    return None


def _digest(hasher: blake3, name: str, tensor: torch.Tensor) -> None:
    shape = ",".join(str(size) for size in tensor.shape)
    for text in (name, str(tensor.dtype), shape):
        encoded = text.encode()
        hasher.update(len(encoded).to_bytes(8, "big"))
        hasher.update(encoded)
    content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    hasher.update(content.nbytes.to_bytes(8, "big"))
    hasher.update(content.data)
