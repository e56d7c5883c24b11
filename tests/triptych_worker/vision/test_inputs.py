"""What a request may say about its picture, of a family with patches and of one with tiles."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from triptych_contract.errors import InvalidRequest
from triptych_worker.domain import EncodeInput
from vision.families import Family, load_family

pytestmark = pytest.mark.torch

PATCHES = torch.ones(16, 1176)
TILES = torch.ones(2, 3, 56, 56)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return load_family("qwen2_5_vl", tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def smolvlm(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return load_family("smolvlm", tmp_path_factory.mktemp("smolvlm"))


def item(tensors: Mapping[str, torch.Tensor], grid: tuple[int, ...], rows: int) -> EncodeInput:
    return EncodeInput(bytes(32), tensors, grid, rows)


@pytest.mark.parametrize(
    ("tensors", "grid", "rows", "says"),
    [
        ({}, (1, 4, 4), 4, "needs the tensor pixel_values"),
        ({"pixel_values": PATCHES, "extra": PATCHES}, (1, 4, 4), 4, "takes no tensor extra"),
        ({"pixel_values": PATCHES.to(torch.uint8)}, (1, 4, 4), 4, "floating point"),
        ({"pixel_values": PATCHES}, (4, 4), 4, "grid must be"),
        ({"pixel_values": PATCHES}, (1, 16, 1), 4, "multiples of 2"),
        ({"pixel_values": PATCHES}, (0, 4, 4), 0, "grid must be"),
        ({"pixel_values": PATCHES}, (1, 4, 6), 6, r"shape \[24, 1176\], not \[16, 1176\]"),
        ({"pixel_values": PATCHES[:, :9]}, (1, 4, 4), 4, r"shape \[16, 1176\]"),
        ({"pixel_values": PATCHES}, (1, 4, 4), 5, "makes 4 embedding rows but 5"),
    ],
)
def test_patches_that_do_not_match_are_refused(
    qwen: Family, tensors: Mapping[str, torch.Tensor], grid: tuple[int, ...], rows: int, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        qwen.vision.encode([item(tensors, grid, rows)])


@pytest.mark.parametrize(
    ("tensors", "rows", "says"),
    [
        ({}, 8, "needs the tensor pixel_values"),
        ({"pixel_values": TILES.to(torch.int64)}, 8, "floating point"),
        ({"pixel_values": TILES[0]}, 8, "must be of shape"),
        ({"pixel_values": torch.tensor(1.0)}, 8, "must be of shape"),
        ({"pixel_values": TILES[:0]}, 0, "at least one tile"),
        ({"pixel_values": TILES[:, :, :, :55]}, 8, "must be of shape"),
        ({"pixel_values": TILES[:, :, :28]}, 8, "must be of shape"),
        ({"pixel_values": TILES}, 4, "makes 8 embedding rows but 4"),
        ({"pixel_values": TILES, "pixel_attention_mask": TILES}, 8, "pixel_attention_mask must"),
    ],
)
def test_tiles_that_do_not_match_are_refused(
    smolvlm: Family, tensors: Mapping[str, torch.Tensor], rows: int, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        smolvlm.vision.encode([item(tensors, (0, 0), rows)])
