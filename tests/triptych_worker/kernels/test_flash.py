import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from triptych_worker.kernels.flash import Span, Spans, attend, attends
from triptych_worker.kernels.machine import Processor

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not attends(torch.float32, 16), reason="a processor without AVX-512"),
]

SERVED = [one for one in (torch.float32, torch.bfloat16) if attends(one, 16)]
# Queries and keys: a block's, one, few over many, more than an item and a panel, whole ones, more
# queries than keys.
LENGTHS = [(64, 64), (1, 1), (7, 300), (130, 517), (16, 256), (33, 8), (3, 257)]
HEADS = [(3, 3), (6, 2)]
SIZES = [8, 10, 16, 24, 64, 72, 80, 128]
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2.0**-6}


class Case:
    """Rows of which spans attend; whoever reads or writes beyond a span shows it."""

    def __init__(self, heads: int, kv_heads: int, size: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(size)
        self.rows = sum(queries for queries, _ in LENGTHS)
        self.tokens = sum(keys for _, keys in LENGTHS) + len(LENGTHS)
        self.packed = torch.randn(self.rows + 5, heads + 2 * kv_heads, size, generator=generator)
        self.packed = self.packed.to(dtype)
        self.query = self.packed[:, :heads]
        self.kv = torch.full((self.tokens, 2, kv_heads, size), float("nan")).to(dtype)
        self.spans, row, token = [], 0, 0
        for queries, keys in LENGTHS:
            self.spans.append(Span(row, queries, token, keys))
            drawn = torch.randn(keys, 2, kv_heads, size, generator=generator)
            self.kv[token : token + keys] = drawn.to(dtype)
            row, token = row + queries, token + keys + 1

    def wanted(self, span: Span, seen: torch.Tensor) -> torch.Tensor:
        """[queries, heads * size] in float64 of one span, whose queries see what ``seen`` says."""
        query = self.query[span.query : span.query + span.queries].double().transpose(0, 1)
        kv = self.kv[span.key : span.key + seen.shape[1]].double().permute(1, 2, 0, 3)
        one = scaled_dot_product_attention(
            query[None], kv[0][None], kv[1][None], attn_mask=seen, enable_gqa=True
        )
        return one[0].transpose(0, 1).flatten(1)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_each_query_sees_the_keys_of_its_span_and_nothing_else(
    *, heads: int, kv_heads: int, size: int, dtype: torch.dtype, threads: int, torch_threads: None
) -> None:
    torch.set_num_threads(threads)
    case = Case(heads, kv_heads, size, dtype)
    keys, values = case.kv.unbind(1)
    made = attend(case.query, keys, values, Spans(case.spans, causal=False), size**-0.5)
    for span in case.spans:
        wanted = case.wanted(span, torch.ones(span.queries, span.keys, dtype=torch.bool))
        rows = made[span.query : span.query + span.queries].double()
        torch.testing.assert_close(rows, wanted, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_causal_queries_see_one_key_more_each(
    heads: int, kv_heads: int, size: int, dtype: torch.dtype
) -> None:
    case = Case(heads, kv_heads, size, dtype)
    keys, values = case.kv.unbind(1)
    last = [  # the last of them sees all keys
        Span(span.query, count, span.key, span.keys - count + 1)
        for span in case.spans
        if (count := min(span.queries, span.keys))
    ]
    made = attend(case.query, keys, values, Spans(last, causal=True), size**-0.5)
    for span in last:
        total = span.keys + span.queries - 1
        seen = torch.ones(span.queries, total, dtype=torch.bool).tril(span.keys - 1)
        rows = made[span.query : span.query + span.queries].double()
        torch.testing.assert_close(
            rows, case.wanted(span, seen), rtol=ROUNDING[dtype], atol=ROUNDING[dtype]
        )


def test_heads_may_lie_side_by_side_or_each_in_a_place_of_its_own() -> None:
    generator = torch.Generator().manual_seed(1)
    query, kv = torch.randn(20, 4, 16, generator=generator), torch.randn(2, 2, 30, 16)
    spans = Spans([Span(0, 20, 0, 11)], causal=True)
    made = [
        attend(query, *kv.transpose(1, 2), spans, 0.25),
        attend(query, *kv.transpose(1, 2).contiguous(), spans, 0.25),
    ]
    assert torch.equal(made[0], made[1])


def test_scores_of_any_size_give_a_mean() -> None:
    keys = torch.zeros(600, 1, 16)
    values = torch.randn(600, 1, 16, generator=torch.Generator().manual_seed(1))
    query, spans = torch.full((3, 1, 16), 100.0), Spans([Span(0, 3, 0, 600)], causal=False)
    torch.testing.assert_close(attend(query, keys, values, spans, 1.0)[2], values[:, 0].mean(0))
    for place in (0, 255, 256, 599):  # the highest score comes first, last, in another panel
        keys[place] = 1000.0
        made = attend(query, keys, values, spans, 1.0)
        torch.testing.assert_close(made[0], values[place, 0])
        keys[place] = 0


@pytest.mark.parametrize("place", [3, 299])
def test_what_is_not_a_number_stays_so(place: int) -> None:
    keys, values = torch.zeros(300, 1, 16), torch.zeros(300, 1, 16)
    query, spans = torch.ones(2, 1, 16), Spans([Span(0, 2, 0, 300)], causal=False)
    values[place, 0, 1] = float("nan")
    assert attend(query, keys, values, spans, 1.0)[1].isnan().nonzero().flatten().tolist() == [1]
    values[place, 0, 1] = 0
    for broken in (float("nan"), float("inf")):
        keys[place] = broken
        assert attend(query, keys, values, spans, 1.0).isnan().all()
    keys[place] = 0
    query[0] = float("nan")
    assert attend(query, keys, values, spans, 1.0).isnan().all(1).tolist() == [True, False]


def test_rows_of_no_span_are_left_alone() -> None:
    rows = torch.ones(70, 1, 16)
    assert attend(rows, rows, rows, Spans([], causal=False), 1.0).shape == (70, 16)
    empty = Spans([Span(0, 0, 0, 0)], causal=True)
    assert len(empty.items) == 0
    assert attend(rows, rows, rows, empty, 1.0).shape == (70, 16)


def test_a_span_is_taken_64_queries_at_a_time() -> None:
    made = Spans([Span(5, 130, 40, 7), Span(200, 1, 0, 9)], causal=True)
    wanted = [[5, 64, 40, 7], [69, 64, 40, 71], [133, 2, 40, 135], [200, 1, 0, 9]]
    assert made.items.tolist() == wanted
    assert (made.queries, made.keys) == (201, 176)
    assert Spans([Span(0, 65, 0, 9)], causal=False).items.tolist() == [[0, 64, 0, 9], [64, 1, 0, 9]]


def test_heads_without_code_are_told() -> None:
    assert not attends(torch.float32, 6)
    assert not attends(torch.float32, 17)
    assert not attends(torch.float16, 64)
    older = Processor("skylake-avx512", "+avx2,+avx512f")
    assert attends(torch.float32, 64, older)
    assert not attends(torch.bfloat16, 64, older)  # it cannot round to that type


def test_what_does_not_fit_is_refused_before_memory_is_touched() -> None:
    rows, spans = torch.zeros(20, 4, 16), Spans([Span(0, 20, 0, 20)], causal=False)
    kv = torch.zeros(20, 2, 16)
    attend(rows, kv, kv, spans, 1.0)
    for query, keys in ((rows[:, :3], kv), (rows.double(), kv), (rows[..., :8], kv)):
        with pytest.raises(ValueError, match="not served"):
            attend(query, keys, keys, spans, 1.0)
    with pytest.raises(ValueError, match="not served"):
        attend(rows, kv, kv[:, :1], spans, 1.0)
    with pytest.raises(ValueError, match="next to each other"):
        attend(torch.zeros(20, 16, 4).transpose(1, 2), kv, kv, spans, 1.0)
    with pytest.raises(ValueError, match="laid out as keys"):
        attend(rows, kv, torch.zeros(2, 20, 16).transpose(0, 1), spans, 1.0)
    for span in (Span(1, 20, 0, 20), Span(0, 1, 0, 21), Span(0, 1, -1, 4), Span(0, 1, 3, 0)):
        with pytest.raises(ValueError, match="are not in the rows"):
            attend(rows, kv, kv, Spans([span], causal=False), 1.0)
    with pytest.raises(ValueError, match="are not in the rows"):
        attend(rows, kv, kv, Spans([Span(0, 2, 0, 20)], causal=True), 1.0)
