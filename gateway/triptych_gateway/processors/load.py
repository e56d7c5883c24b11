"""Loading a model's processor: tokenizer, image processor and chat template, never its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych_contract.config import Model
from triptych_contract.errors import InvalidModel
from triptych_contract.fingerprints import Canonical
from triptych_contract.processor import effective_processor

from triptych_gateway.processors.pictures import PictureProcessor, family_of
from triptych_gateway.processors.prompts import PromptBuilder


@dataclass(frozen=True, slots=True)
class ModelProcessor:
    """The gateway's side of a model, and the image-processor parameters it runs with."""

    pictures: PictureProcessor
    prompts: PromptBuilder
    parameters: dict[str, Canonical]


def load_processor(folder: Path, model: Model) -> ModelProcessor:
    """Loads what stands in ``folder``, with the overrides of ``model`` applied.

    Raises:
        InvalidModel: a file is missing or damaged, or the family is not served.
    """
    family = family_of(_model_type(folder))
    parameters = effective_processor(folder, model.processor)
    processor = _transformers_processor(folder)
    processor.image_processor = type(processor.image_processor).from_dict(dict(parameters))
    return ModelProcessor(
        pictures=PictureProcessor(family, processor),
        prompts=PromptBuilder(processor),
        parameters=parameters,
    )


def _model_type(folder: Path) -> str:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidModel(f"{folder}/config.json cannot be read") from error
    return str(config.get("model_type", "")) if isinstance(config, dict) else ""


def _transformers_processor(folder: Path) -> Any:
    from transformers import AutoProcessor  # noqa: PLC0415 - seconds, which tests without it save

    try:
        return AutoProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise InvalidModel(
            f"the processor in {folder} cannot be loaded ({type(error).__name__}): it needs "
            "tokenizer.json, tokenizer_config.json, a processor configuration and a chat template"
        ) from error
