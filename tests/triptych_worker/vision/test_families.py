"""Every family's embeddings are transformers', alone and in any company.

Tolerance: float32 rounding. Sums may be taken in another order than transformers takes them (one
batched attention call for many windows, a fused multiply-add in the rotation), which moves the last
bits; over a few layers that stays below 2e-5 of an embedding's scale.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from vision.families import Family, pictures

pytestmark = pytest.mark.torch


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    scale = float(theirs.abs().max())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5 * scale)


def test_a_picture_alone_is_what_transformers_makes_of_it(family: Family) -> None:
    for item in pictures(family.name):
        (embedding,) = family.vision.encode([item])
        assert embedding.shape == (item.visual_tokens, family.vision.width)
        close(embedding, family.reference(item))


def test_a_batch_of_different_sizes_is_what_transformers_makes_of_each(family: Family) -> None:
    items = pictures(family.name)
    for item, embedding in zip(items, family.vision.encode(items), strict=True):
        close(embedding, family.reference(item))


def test_company_changes_an_embedding_by_rounding_at_most(family: Family) -> None:
    items = pictures(family.name)
    alone = [family.vision.encode([item])[0] for item in items]
    for company in (items, items[::-1], items[:3] * 3):
        for item, embedding in zip(company, family.vision.encode(company), strict=True):
            close(embedding, alone[[other is item for other in items].index(True)])


def test_the_same_batch_twice_is_the_same_to_the_last_bit(family: Family) -> None:
    items = pictures(family.name)
    for one, other in zip(family.vision.encode(items), family.vision.encode(items), strict=True):
        assert torch.equal(one, other)


def test_equal_pictures_have_equal_embeddings(family: Family) -> None:
    item = pictures(family.name)[0]
    one, other = family.vision.encode([item, item])
    close(one, other)


def test_a_still_picture_sent_as_one_frame_is_the_same_to_the_last_bit(family: Family) -> None:
    item = pictures(family.name)[2]
    pixels = item.tensors["pixel_values"]
    if family.name == "smolvlm":
        return  # tiles have no frames
    frame = pixels.view(len(pixels), 3, 2, -1)[:, :, :1]
    whole = frame.expand(-1, -1, 2, -1).reshape(pixels.shape)
    sent = replace(item, tensors={"pixel_values": frame.reshape(len(pixels), -1)})
    (one,), (other,) = (
        family.vision.encode([each])
        for each in (sent, replace(item, tensors={"pixel_values": whole}))
    )
    assert torch.equal(one, other)
