"""Packed attention over the pool equals plain attention over each sequence by itself."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from triptych_worker.language.attention import AttentionPlan, Segment, single_tokens
from triptych_worker.language.layout import KvLayout
from triptych_worker.language.pool import KvPool

pytestmark = pytest.mark.torch

LAYERS, HEADS, KV_HEADS = 2, 6, 2
SIZES = [6, 8, 16]  # by PyTorch, by the kernel of many tokens, and by that of single ones too


def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """[L, heads * D] of one whole sequence; query is [heads, L, D], keys and values of KV heads."""
    key, value = (each.repeat_interleave(HEADS // KV_HEADS, dim=0) for each in (key, value))
    output = scaled_dot_product_attention(query, key, value, is_causal=True)
    return output.transpose(0, 1).flatten(1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "chunks",
    [[[9]], [[1]], [[4, 5]], [[3, 1, 5]], [[6, 1, 1], [1, 4, 3], [2, 2, 4], [7, 1]]],
    ids=["at once", "one token", "two chunks", "a token between", "four sequences"],
)
def test_chunks_of_packed_sequences_attend_like_each_sequence_alone(
    chunks: list[list[int]], size: int
) -> None:
    generator = torch.Generator().manual_seed(3)
    lengths = [sum(parts) for parts in chunks]

    def draw(heads: int) -> list[torch.Tensor]:
        return [torch.randn(heads, n, size, generator=generator) for n in lengths]

    queries, keys, values = draw(HEADS), draw(KV_HEADS), draw(KV_HEADS)
    pool = KvPool(KvLayout(LAYERS, KV_HEADS, size, torch.float32), 100, torch.device("cpu"))
    pool.tensor.fill_(float("nan"))  # whoever reads beyond a sequence shows it
    starts = [7 + sum(lengths[:index]) for index in range(len(lengths))]
    outputs: list[list[torch.Tensor]] = [[] for _ in chunks]
    past = [0] * len(chunks)
    for step in range(max(map(len, chunks))):
        taking = [index for index, parts in enumerate(chunks) if step < len(parts)]
        segments = [Segment(starts[i], past[i], chunks[i][step]) for i in taking]
        ranges = [slice(segment.past, segment.past + segment.length) for segment in segments]
        packed = [
            torch.cat([of[i][:, r] for i, r in zip(taking, ranges, strict=True)], dim=1)
            .transpose(0, 1)
            .contiguous()
            for of in (queries, keys, values)
        ]
        plan = AttentionPlan(segments, pool)
        plan.write(1, torch.cat(packed[1:], dim=1))
        rows = plan.attend(1, packed[0], size**-0.5).split([each.length for each in segments])
        for index, row, segment in zip(taking, rows, segments, strict=True):
            outputs[index].append(row)
            past[index] += segment.length
    for index, parts in enumerate(outputs):
        expected = plain(queries[index], keys[index], values[index])
        torch.testing.assert_close(torch.cat(parts), expected)
    assert pool.tensor[0].isnan().all(), "another layer was written"


def test_rows_become_segments_of_one_token() -> None:
    segments = [Segment(100, 4, 3), Segment(7, 0, 1), Segment(50, 2, 4)]
    assert list(single_tokens(segments, [])) == []
    assert list(single_tokens(segments, [2, 3, 4, 7])) == [
        Segment(100, 6, 1),
        Segment(7, 0, 1),
        Segment(50, 2, 1),
        Segment(50, 5, 1),
    ]
    assert next(iter(single_tokens(segments, range(8)))) == Segment(100, 4, 1)
