"""What only SmolVLM has: tiles of zeros that are padding, and masks of padded pixels."""

from __future__ import annotations

import pytest
import torch
from vision.families import Family, load_family, tiles

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def smolvlm(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return load_family("smolvlm", tmp_path_factory.mktemp("smolvlm"))


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.randn(4, 3, 56, 56, generator=torch.Generator().manual_seed(3))


def test_tiles_of_zeros_are_dropped(smolvlm: Family, pixels: torch.Tensor) -> None:
    pixels[1] = 0.0
    item = tiles(pixels, rows=12)
    (embedding,) = smolvlm.vision.encode([item])
    assert embedding.shape == (12, smolvlm.vision.width)
    torch.testing.assert_close(embedding, smolvlm.reference(item), rtol=0, atol=1e-5)


def test_a_picture_of_zeros_alone_keeps_its_first_tile(smolvlm: Family) -> None:
    item = tiles(torch.zeros(2, 3, 56, 56), rows=4)
    (embedding,) = smolvlm.vision.encode([item])
    torch.testing.assert_close(embedding, smolvlm.reference(item), rtol=0, atol=1e-5)


def test_padded_pixels_are_masked_and_change_nobody_else(
    smolvlm: Family, pixels: torch.Tensor
) -> None:
    mask = torch.ones(4, 56, 56, dtype=torch.int64)
    mask[2:, 28:] = 0
    masked = tiles(pixels, pixel_attention_mask=mask)
    whole = tiles(pixels, pixel_attention_mask=torch.ones_like(mask))
    plain = tiles(pixels)
    embeddings = smolvlm.vision.encode([plain, masked, whole])
    for item, embedding in zip((plain, masked, whole), embeddings, strict=True):
        torch.testing.assert_close(embedding, smolvlm.reference(item), rtol=0, atol=1e-5)
    torch.testing.assert_close(embeddings[0], embeddings[2], rtol=0, atol=1e-5)
    assert not torch.allclose(embeddings[0], embeddings[1], atol=1e-3)
