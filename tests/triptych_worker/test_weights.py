import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from triptych_contract.errors import InvalidModel
from triptych_worker.weights import Family, Part, load_part, open_folder

pytestmark = pytest.mark.torch

VISION = {"blocks.0.norm.weight": torch.tensor([1.0, 2.0])}
LANGUAGE = {
    "embed_tokens.weight": torch.arange(6.0).reshape(3, 2),
    "lm_head.weight": torch.arange(6.0).reshape(3, 2) + 1,
}


def write_folder(path: Path, model_type: str, tensors: dict[str, torch.Tensor]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({"model_type": model_type}))
    (path / "tokenizer.json").write_text("{}")
    save_file(tensors, path / "model.safetensors")
    return path


def hub_style() -> dict[str, torch.Tensor]:
    return {
        "visual.blocks.0.norm.weight": VISION["blocks.0.norm.weight"],
        "model.embed_tokens.weight": LANGUAGE["embed_tokens.weight"],
        "lm_head.weight": LANGUAGE["lm_head.weight"],
    }


def new_style() -> dict[str, torch.Tensor]:
    return {
        "model.visual.blocks.0.norm.weight": VISION["blocks.0.norm.weight"],
        "model.language_model.embed_tokens.weight": LANGUAGE["embed_tokens.weight"],
        "lm_head.weight": LANGUAGE["lm_head.weight"],
    }


@pytest.mark.parametrize("part", list(Part))
def test_both_naming_styles_load_and_digest_alike(tmp_path: Path, part: Part) -> None:
    loaded = [
        load_part(
            open_folder(write_folder(tmp_path / name, "qwen2_5_vl", style()), part), torch.float32
        )
        for name, style in (("hub", hub_style), ("new", new_style))
    ]
    expected = VISION if part is Part.VISION else LANGUAGE
    for weights in loaded:
        assert set(weights.tensors) == set(expected)
        for name, tensor in expected.items():
            assert torch.equal(weights.tensors[name], tensor)
    assert loaded[0].digest == loaded[1].digest
    assert len(loaded[0].digest) == 64


def test_smolvlm_keeps_vision_and_connector_apart_from_text(tmp_path: Path) -> None:
    tensors = {
        "model.vision_model.norm.weight": torch.ones(2),
        "model.connector.proj.weight": torch.ones(3),
        "model.text_model.norm.weight": torch.ones(4),
        "lm_head.weight": torch.ones(5),
    }
    path = write_folder(tmp_path, "smolvlm", tensors)
    vision = load_part(open_folder(path, Part.VISION), torch.float32)
    language = load_part(open_folder(path, Part.LANGUAGE), torch.float32)
    assert set(vision.tensors) == {"vision_model.norm.weight", "connector.proj.weight"}
    assert set(language.tensors) == {"norm.weight", "lm_head.weight"}


def test_shards_are_read_as_one_and_digest_like_a_single_file(tmp_path: Path) -> None:
    single = write_folder(tmp_path / "single", "qwen3_vl", new_style())
    sharded = write_folder(tmp_path / "sharded", "qwen3_vl", {"unused": torch.ones(1)})
    (sharded / "model.safetensors").unlink()
    weight_map = {}
    for number, (name, tensor) in enumerate(new_style().items()):
        file = f"model-{number}.safetensors"
        save_file({name: tensor}, sharded / file)
        weight_map[name] = file
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    one = load_part(open_folder(single, Part.LANGUAGE), torch.float32)
    many = load_part(open_folder(sharded, Part.LANGUAGE), torch.float32)
    assert one.digest == many.digest
    assert set(one.tensors) == set(many.tensors)


@pytest.mark.parametrize(
    "changed",
    [
        {"blocks.0.norm.weight": torch.tensor([1.0, 3.0])},
        {"blocks.0.norm.weight": torch.tensor([[1.0], [2.0]])},
        {"blocks.0.norm.bias": torch.tensor([1.0, 2.0])},
        {"blocks.0.norm.weight": torch.tensor([1.0, 2.0]).half()},
        {"blocks.0.norm.weight": torch.tensor([1.0, 2.0]).view(torch.int32)},
    ],
    ids=["value", "shape", "name", "dtype", "dtype of the same bytes"],
)
def test_the_digest_tells_any_difference(tmp_path: Path, changed: dict[str, torch.Tensor]) -> None:
    def digest(name: str, tensors: dict[str, torch.Tensor]) -> str:
        stored = {f"visual.{key}": value for key, value in tensors.items()}
        folder = open_folder(write_folder(tmp_path / name, "qwen2_vl", stored), Part.VISION)
        return load_part(folder, torch.float32).digest

    assert digest("before", VISION) != digest("after", changed)


def test_weights_come_in_the_requested_type_whatever_the_file_holds(tmp_path: Path) -> None:
    tensors = {name: tensor.half() for name, tensor in hub_style().items()}
    folder = open_folder(write_folder(tmp_path, "qwen2_vl", tensors), Part.LANGUAGE)
    assert load_part(folder, torch.float32).tensors["lm_head.weight"].dtype == torch.float32
    half, full = load_part(folder, torch.bfloat16), load_part(folder, torch.float32)
    assert half.tensors["lm_head.weight"].dtype == torch.bfloat16
    assert half.digest == full.digest


def test_an_encoder_folder_may_hold_the_vision_tensors_alone(tmp_path: Path) -> None:
    stored = {"visual.blocks.0.norm.weight": VISION["blocks.0.norm.weight"]}
    path = write_folder(tmp_path, "qwen2_5_vl", stored)
    (path / "tokenizer.json").unlink()
    folder = open_folder(path, Part.VISION)
    assert folder.family is Family.QWEN2_5_VL
    assert set(load_part(folder, torch.float32).tensors) == set(VISION)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path, "qwen2_vl", hub_style())
    (path / name).unlink()
    with pytest.raises(InvalidModel, match=f"is missing {name}"):
        open_folder(path, Part.LANGUAGE)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    path = write_folder(tmp_path, "qwen2_vl", hub_style())
    index = {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidModel, match=r"is missing model-00002-of-00002\.safetensors"):
        open_folder(path, Part.LANGUAGE)


def test_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="does not exist"):
        open_folder(tmp_path / "nowhere", Part.VISION)


def test_an_unknown_family_is_named(tmp_path: Path) -> None:
    path = write_folder(tmp_path, "gpt2", hub_style())
    with pytest.raises(InvalidModel, match="'gpt2'"):
        open_folder(path, Part.LANGUAGE)


@pytest.mark.parametrize("content", ["{", "[]"], ids=["no JSON", "no object"])
def test_a_damaged_configuration_is_named(tmp_path: Path, content: str) -> None:
    path = write_folder(tmp_path, "qwen2_vl", hub_style())
    (path / "config.json").write_text(content)
    with pytest.raises(InvalidModel, match=r"config\.json"):
        open_folder(path, Part.LANGUAGE)


@pytest.mark.parametrize("keep", [0, 4, 100, -1], ids=lambda keep: f"{keep} bytes kept")
def test_a_truncated_weight_file_is_named(tmp_path: Path, keep: int) -> None:
    path = write_folder(tmp_path, "qwen2_vl", hub_style())
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InvalidModel, match=r"model\.safetensors is damaged"):
        load_part(open_folder(path, Part.LANGUAGE), torch.float32)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = write_folder(tmp_path, "qwen2_vl", {"transformer.h.0": torch.ones(1)})
    with pytest.raises(InvalidModel, match="no language weights"):
        load_part(open_folder(path, Part.LANGUAGE), torch.float32)
