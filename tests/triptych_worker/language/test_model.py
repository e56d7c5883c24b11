import json
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
from triptych_contract.errors import InvalidModel
from triptych_worker.language.attention import Segment
from triptych_worker.language.layout import KvLayout
from triptych_worker.language.model import LanguageModel, PackedBatch
from triptych_worker.language.pool import KvPool
from triptych_worker.weights import Part, open_folder

pytestmark = pytest.mark.torch

FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm"]


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LanguageModel:
    return LanguageModel(open_folder(folder, Part.LANGUAGE), dtype, torch.device("cpu"))


@pytest.fixture
def copied(tiny_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(copytree(tiny_folder("qwen2_5_vl"), tmp_path / "model"))


def edit(path: Path, change: Callable[[dict[str, dict[str, object]]], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_packed_chunks_are_those_of_the_whole_model(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    folder = tiny_folder(family)
    model = load(folder)
    whole = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    token_ids = torch.arange(10, 30)
    with torch.inference_mode():
        expected = whole(input_ids=token_ids[None]).logits[0]
    pool = KvPool(model.layout, 64, model.device)

    def run(first: int, end: int) -> torch.Tensor:
        positions = torch.arange(first, end).expand(model.adapter.axes, -1)
        segments = [Segment(30, first, end - first)]
        rows = range(end - first)
        return model.forward(
            PackedBatch(token_ids[first:end], positions, None, segments, rows), pool
        )

    ours = torch.cat([run(0, 7), run(7, 15), run(15, 16), run(16, 20)])
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_logits_stray_from_exact_ones_no_further_than_the_whole_models(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    folder = tiny_folder(family)
    token_ids = torch.arange(10, 74)
    with torch.inference_mode():
        exact, rounded = (
            AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)(
                input_ids=token_ids[None]
            ).logits[0]
            for dtype in (torch.float32, torch.bfloat16)
        )
    model = load(folder, torch.bfloat16)
    pool = KvPool(model.layout, 64, model.device)
    positions = torch.arange(64).expand(model.adapter.axes, -1)
    batch = PackedBatch(token_ids, positions, None, [Segment(0, 0, 64)], range(64))
    ours, theirs = (
        (logits - exact).abs().mean() for logits in (model.forward(batch, pool), rounded)
    )
    assert 0 < ours < 1.1 * theirs


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_says_its_layout_bounds_and_ends(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    model = load(tiny_folder(family))
    assert model.layout == KvLayout(layers=3, kv_heads=2, head_dim=16, dtype=torch.float32)
    assert model.context_tokens == 4096
    assert model.eos_ids == {0, 2}
    assert model.row_width == (192 if family == "qwen3_vl" else 64)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_made_for_the_rows_that_are_asked_for(
    tiny_folder: Callable[[str], Path], family: str
) -> None:
    model = load(tiny_folder(family))
    token_ids = torch.arange(10, 22)
    positions = torch.arange(6).repeat(2).expand(model.adapter.axes, -1)
    segments = [Segment(5, 0, 6), Segment(40, 0, 6)]

    def run(rows: Sequence[int]) -> torch.Tensor:
        pool = KvPool(model.layout, 64, model.device)
        return model.forward(PackedBatch(token_ids, positions, None, segments, rows), pool)

    every = run(range(12))
    for rows in ([], [5], [5, 11], [0, 3, 7, 8, 10]):
        torch.testing.assert_close(run(rows), every[list(rows)], rtol=1e-5, atol=1e-5)


def test_weights_come_in_the_dtype_asked_for(tiny_folder: Callable[[str], Path]) -> None:
    model = load(tiny_folder("qwen2_5_vl"), torch.bfloat16)
    batch = PackedBatch(
        torch.arange(3), torch.arange(3).expand(3, -1), None, [Segment(0, 0, 3)], [2]
    )
    assert model.forward(batch, KvPool(model.layout, 8, model.device)).dtype == torch.bfloat16
    assert model.layout.dtype == torch.bfloat16
    assert model.weights_digest == load(tiny_folder("qwen2_5_vl")).weights_digest


def test_ends_come_from_the_configuration_where_there_is_no_generation_config(
    copied: Path,
) -> None:
    (copied / "generation_config.json").unlink()
    assert load(copied).eos_ids == {2}


def test_sliding_attention_is_refused(copied: Path) -> None:
    def slide(config: dict[str, dict[str, object]]) -> None:
        config["text_config"] |= {
            "use_sliding_window": True,
            "max_window_layers": 1,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        }

    edit(copied / "config.json", slide)
    with pytest.raises(InvalidModel, match="only full attention is served"):
        load(copied)


def test_rotary_embeddings_that_depend_on_other_requests_are_refused(copied: Path) -> None:
    def stretch(config: dict[str, dict[str, object]]) -> None:
        config["text_config"]["rope_parameters"] = {
            "rope_type": "dynamic",
            "rope_theta": 1e4,
            "factor": 2.0,
            "mrope_section": [2, 3, 3],
        }

    edit(copied / "config.json", stretch)
    with pytest.raises(InvalidModel, match="choose a static rope_type"):
        load(copied)


@pytest.mark.parametrize(
    "name", ["lm_head.weight", "model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"]
)
def test_a_missing_tensor_is_named(copied: Path, name: str) -> None:
    tensors = load_file(copied / "model.safetensors")
    del tensors[name]
    save_file(tensors, copied / "model.safetensors")
    with pytest.raises(InvalidModel, match=name.removeprefix("model.")):
        load(copied)


def test_weights_of_another_shape_are_refused(copied: Path) -> None:
    edit(copied / "config.json", lambda config: config["text_config"].update(hidden_size=128))
    with pytest.raises(InvalidModel, match=r"do not fit its config\.json"):
        load(copied)
