"""Loads the vision part of a model folder, and nothing of its language model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from transformers import AutoConfig
from transformers.models.idefics3 import modeling_idefics3
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl
from transformers.models.smolvlm import modeling_smolvlm
from triptych_contract.errors import InvalidModel

from triptych_worker.domain import VisionModel
from triptych_worker.packing import packs
from triptych_worker.vision import qwen
from triptych_worker.vision.packed import pack
from triptych_worker.vision.qwen import QwenVision
from triptych_worker.vision.smolvlm import SmolVLMVision
from triptych_worker.weights import ModelFolder, Part, PartWeights, load_part, open_folder

# A pass on a CPU is as large as its caches bear; on an accelerator, as the stage's batch.
_CPU_PATCHES: Final = 1024
_DEVICE_PATCHES: Final = 65536

_QWEN: Final[Mapping[str, Any]] = {
    "qwen2_vl": modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel,
    "qwen2_5_vl": modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel,
    "qwen3_vl": modeling_qwen3_vl.Qwen3VLVisionModel,
}
_TILED: Final[Mapping[str, tuple[Any, Any]]] = {
    "smolvlm": (
        modeling_smolvlm.SmolVLMVisionTransformer,
        modeling_smolvlm.SmolVLMConnector,
    ),
    "idefics3": (
        modeling_idefics3.Idefics3VisionTransformer,
        modeling_idefics3.Idefics3Connector,
    ),
}


def load_vision(
    folder: Path, encoder_folder: Path | None, dtype: torch.dtype, device: torch.device
) -> VisionModel:
    """The vision part of the model in ``folder``, or the one in ``encoder_folder`` in its place.

    ``encoder_folder`` needs a config.json and the vision weights only.

    Raises:
        InvalidModel: a folder is incomplete or damaged, or the encoder does not fit the model.
    """
    chosen = open_folder(encoder_folder or folder, Part.VISION)
    config = _config(chosen.path)
    if encoder_folder is not None:
        _check_fit(chosen, config, folder)
    weights = load_part(chosen, dtype)
    limit = _CPU_PATCHES if device.type == "cpu" else _DEVICE_PATCHES
    vision: VisionModel
    if config.model_type in _QWEN:
        module = _qwen_module(chosen, config, weights).to(device)
        vision = QwenVision(module, weights.digest, limit)
    else:
        module = _tiled_modules(chosen, config, weights).to(device)
        vision = SmolVLMVision(module["vision_model"], module["connector"], weights.digest, limit)
    if packs(dtype, device):
        pack(module)
    return vision


def _qwen_module(folder: ModelFolder, config: Any, weights: PartWeights) -> Any:
    kind = _QWEN[config.model_type]
    with torch.device("meta"):
        module = kind._from_config(config.vision_config)
    _fill(module, folder, weights)
    # Its buffers are computed, not loaded.
    module.rotary_pos_emb = type(module.rotary_pos_emb)(config.vision_config)
    return module.eval().requires_grad_(requires_grad=False)


def _tiled_modules(folder: ModelFolder, config: Any, weights: PartWeights) -> Any:
    vision_model, connector = _TILED[config.model_type]
    with torch.device("meta"):
        modules = nn.ModuleDict(
            {
                "vision_model": vision_model._from_config(config.vision_config),
                "connector": connector(config),
            }
        )
    _fill(modules, folder, weights)
    return modules.eval().requires_grad_(requires_grad=False)


def _fill(module: nn.Module, folder: ModelFolder, weights: PartWeights) -> None:
    """Gives the module the loaded tensors themselves, without a second copy in memory."""
    expected = module.state_dict()
    missing = sorted(set(expected) - set(weights.tensors))
    unknown = sorted(set(weights.tensors) - set(expected))
    if missing or unknown:
        raise InvalidModel(
            f"the vision weights in {folder.path} are not those of its config.json: "
            f"{len(missing)} missing {missing[:3]}, {len(unknown)} unknown {unknown[:3]}"
        )
    for name, tensor in expected.items():
        if tensor.shape != weights.tensors[name].shape:
            raise InvalidModel(
                f"{name} in {folder.path} is of shape {list(weights.tensors[name].shape)}, "
                f"config.json says {list(tensor.shape)}"
            )
    module.load_state_dict(weights.tensors, assign=True)


def _config(path: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidModel(f"{path / 'config.json'} cannot be read: {error}") from error


def _check_fit(encoder: ModelFolder, config: Any, folder: Path) -> None:
    model = _config(open_folder(folder, Part.VISION).path)
    if model.model_type != config.model_type or _width(model) != _width(config):
        raise InvalidModel(
            f"the encoder in {encoder.path} ({config.model_type}, rows of {_width(config)}) does"
            f" not fit the model in {folder} ({model.model_type}, rows of {_width(model)})"
        )


def _width(config: Any) -> int:
    if config.model_type in _QWEN:
        return qwen.width(config.vision_config)
    width: int = config.text_config.hidden_size
    return width
