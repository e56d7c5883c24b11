"""Loads exactly the parts of a model that a tier needs. Takes long: call it off the event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from triptych_contract.config import Model, WorkerConfig
from triptych_contract.errors import InvalidModel, InvalidRequest
from triptych_contract.fingerprints import EncoderIdentity, language_digest
from triptych_contract.names import Tier
from triptych_models.sources import model_folder, vision_folder

from triptych_worker.domain import VisionModel
from triptych_worker.language.model import LanguageModel
from triptych_worker.language.pool import KvPool
from triptych_worker.language.vocabulary import Vocabulary
from triptych_worker.serving.identity import encoder_identity, language_identity
from triptych_worker.vision import load_vision
from triptych_worker.weights import Part, open_folder

_DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class Vision:
    """A loaded vision part and who it is."""

    model: VisionModel
    identity: EncoderIdentity


@dataclass(frozen=True, slots=True)
class Language:
    """A loaded language model with its KV memory, and who it is."""

    model: LanguageModel
    vocabulary: Vocabulary
    pool: KvPool
    digest: str


@dataclass(frozen=True, slots=True)
class Models:
    """What a tier runs."""

    vision: Vision | None
    language: Language | None


def encodes(tier: Tier, config: WorkerConfig) -> bool:
    """Whether the tier loads a vision part."""
    if tier is Tier.ENCODER:
        return True
    if tier is Tier.DECODE:
        return False
    return tier is Tier.FUSED if config.can_encode is None else config.can_encode


def generates(tier: Tier) -> bool:
    """Whether the tier loads a language model."""
    return tier is not Tier.ENCODER


def load_models(tier: Tier, config: WorkerConfig) -> Models:
    """Reads the model's folder.

    Raises:
        InvalidModel: the folder is missing, incomplete, damaged or of an unknown family.
        InvalidRequest: the configured device is not here, or is too small.
        Unavailable: the files must be downloaded and cannot be now.
    """
    device = device_of(config.model.device)
    with _memory(config.model.device):
        return Models(
            vision=_vision(config.model, device) if encodes(tier, config) else None,
            language=_language(config, device) if generates(tier) else None,
        )


def _vision(model: Model, device: torch.device) -> Vision:
    folder = model_folder(model)
    override = vision_folder(model.encoder) if model.encoder else None
    vision = load_vision(folder, override, _DTYPES[model.dtype], device)
    return Vision(vision, encoder_identity(model, folder, vision.weights_digest))


def _language(config: WorkerConfig, device: torch.device) -> Language:
    folder = open_folder(model_folder(config.model), Part.LANGUAGE)
    vocabulary = Vocabulary.load(folder.path)
    model = LanguageModel(folder, _DTYPES[config.model.dtype], device)
    pool = KvPool(model.layout, config.language.kv_tokens, device)
    identity = language_identity(config.model, model.weights_digest, model.layout.describe())
    return Language(model, vocabulary, pool, language_digest(identity))


def device_of(name: str) -> torch.device:
    """The configured device.

    Raises:
        InvalidRequest: it is not here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidRequest(
            f"model.device: {name!r} is no device; use cpu, cuda, cuda:1"
        ) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidRequest(
            f"model.device: {name} is not here, {torch.cuda.device_count()} CUDA devices are; use "
            "cpu, or give the process a GPU"
        )
    return device


@contextmanager
def _memory(device: str) -> Iterator[None]:
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise InvalidModel(
            f"the model does not fit the memory of {device}: use a larger one, another dtype, or "
            "fewer language.kv_tokens"
        ) from error
