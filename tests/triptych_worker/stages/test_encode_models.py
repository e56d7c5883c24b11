"""The encode stage with a real vision part."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import build
from triptych_contract.config import EncodeLimits
from triptych_contract.errors import InvalidRequest, NonFinite
from triptych_worker.cores import Cores
from triptych_worker.domain import EncodeInput
from triptych_worker.serving.metrics import Metrics
from triptych_worker.stages.encode import PictureEncoder
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.store import Origin, TensorStore
from triptych_worker.vision import load_vision
from vision.families import pictures

pytestmark = pytest.mark.torch

FINGERPRINT = "c" * 64
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("qwen2_5_vl", tmp_path_factory.mktemp("qwen"))


@pytest.fixture
def cores() -> Iterator[Cores]:
    made = Cores()
    yield made
    made.close()


def keyed() -> list[EncodeInput]:
    return [
        EncodeInput(bytes([index]) * 32, item.tensors, item.grid, item.visual_tokens)
        for index, item in enumerate(pictures("qwen2_5_vl"))
    ]


def stage_of(folder: Path, cores: Cores) -> tuple[PictureEncoder, TensorStore]:
    model = load_vision(folder, None, torch.float32, CPU)
    store = TensorStore(Arena(1 << 20), Origin("127.0.0.1:1", "i", ("grpc",)), lease_seconds=30.0)
    limits = EncodeLimits(cache_bytes=1 << 20)
    return PictureEncoder(model, store, FINGERPRINT, limits, Metrics(), cores=cores), store


async def test_pictures_of_many_sizes_come_out_as_the_model_makes_them(
    folder: Path, cores: Cores
) -> None:
    stage, store = stage_of(folder, cores)
    items = keyed()
    answers = await asyncio.gather(*(stage.encode(item, FINGERPRINT) for item in items))
    expected = load_vision(folder, None, torch.float32, CPU).encode(items)
    for answer, embedding in zip(answers, expected, strict=True):
        handle = answer.handle
        with store.reading(handle.lease_id, handle.key, FINGERPRINT) as held:
            published = store.arena.tensor(held.start, held.shape, held.dtype)
            torch.testing.assert_close(published, embedding, rtol=0, atol=1e-4)
    stage.close()


async def test_a_model_with_nan_weights_answers_nothing(
    folder: Path, tmp_path: Path, cores: Cores
) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "visual" in name and "mlp.down_proj.weight" in name)
    tensors[name][0, 0] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors")
    stage, store = stage_of(tmp_path, cores)
    for _ in range(2):  # neither cached nor served
        with pytest.raises(NonFinite):
            await stage.encode(keyed()[0], FINGERPRINT)
    assert store.leases == 0
    assert store.holdings() == []
    stage.close()


async def test_a_malformed_picture_in_a_batch_is_refused_alone(folder: Path, cores: Cores) -> None:
    stage, _ = stage_of(folder, cores)
    good, other = keyed()[:2]
    bad = EncodeInput(b"b" * 32, good.tensors, (1, 2, 2), 1)
    asked = [stage.encode(item, FINGERPRINT) for item in (other, good, bad)]
    one, two, error = await asyncio.gather(*asked, return_exceptions=True)
    assert not isinstance(one, BaseException)
    assert not isinstance(two, BaseException)
    assert isinstance(error, InvalidRequest)
    stage.close()
