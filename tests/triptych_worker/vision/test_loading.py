"""What a tier loads of a folder, and folders that it must refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import build
from triptych_contract.errors import InvalidModel
from triptych_worker.domain import VisionModel
from triptych_worker.vision import load_vision
from vision.families import pictures

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("qwen2_5_vl", tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "model"))


def load(folder: Path, encoder: Path | None = None) -> VisionModel:
    return load_vision(folder, encoder, torch.float32, CPU)


def rewrite(folder: Path, change: dict[str, torch.Tensor | None]) -> None:
    tensors = load_file(folder / WEIGHTS) | change
    save_file({name: one for name, one in tensors.items() if one is not None}, folder / WEIGHTS)


def encoder_of(folder: Path, path: Path, factor: float) -> Path:
    """A folder of the vision tensors alone, times ``factor``."""
    path.mkdir()
    shutil.copy(folder / "config.json", path)
    vision = {
        name: tensor * factor
        for name, tensor in load_file(folder / WEIGHTS).items()
        if "visual." in name
    }
    save_file(vision, path / WEIGHTS)
    return path


def test_an_encoder_of_its_own_takes_the_place_of_the_models(folder: Path, tmp_path: Path) -> None:
    own = load(folder)
    other = load(folder, encoder_of(folder, tmp_path / "other", 1.1))
    assert own.weights_digest != other.weights_digest
    item = pictures("qwen2_5_vl")[0]
    assert not torch.allclose(own.encode([item])[0], other.encode([item])[0], atol=1e-3)


def test_the_same_weights_in_a_folder_of_their_own_are_the_same_encoder(
    folder: Path, tmp_path: Path
) -> None:
    own = load(folder)
    same = load(folder, encoder_of(folder, tmp_path / "same", 1.0))
    assert own.weights_digest == same.weights_digest
    item = pictures("qwen2_5_vl")[0]
    assert torch.equal(own.encode([item])[0], same.encode([item])[0])


def test_the_language_models_weights_are_not_read(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    rewrite(folder, {name: None for name in tensors if "visual." not in name})
    assert load(folder).width == 64


def test_half_precision_is_loaded_as_asked(folder: Path) -> None:
    vision = load_vision(folder, None, torch.bfloat16, CPU)
    item = pictures("qwen2_5_vl")[0]
    (embedding,) = vision.encode([item])
    assert embedding.dtype == vision.dtype == torch.bfloat16
    exact = load(folder).encode([item])[0]
    error = (embedding.float() - exact).abs().max() / exact.abs().max()
    assert error < 0.05


def test_a_missing_tensor_is_named(folder: Path) -> None:
    name = next(name for name in load_file(folder / WEIGHTS) if "visual.merger" in name)
    rewrite(folder, {name: None})
    with pytest.raises(InvalidModel, match=r"1 missing \['merger"):
        load(folder)


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    name = next(name for name in load_file(folder / WEIGHTS) if "visual.merger" in name)
    rewrite(folder, {name: torch.zeros(3)})
    with pytest.raises(InvalidModel, match=r"merger.* is of shape \[3\]"):
        load(folder)


def test_an_encoder_of_other_rows_does_not_fit(folder: Path, tmp_path: Path) -> None:
    other = encoder_of(folder, tmp_path / "other", 1.0)
    config = json.loads((other / "config.json").read_text())
    config["vision_config"]["out_hidden_size"] = 32
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidModel, match="does not fit"):
        load(folder, other)


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    with pytest.raises(InvalidModel, match=r"missing model\.safetensors"):
        load(folder)
