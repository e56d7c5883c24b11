"""The kernels by themselves beside PyTorch's and oneDNN's: ``python -m bench.kernels``.

Products of the bench's model: one pass over all weights of a decode step, so that each is read from
memory. Attention of one token of eight answers, all layers. Attention of many tokens, one layer: a
picture's windows, all of a picture, a prompt. All in turn, within one process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch.nn.functional import linear, scaled_dot_product_attention
from triptych_worker.kernels import flash
from triptych_worker.kernels.attention import Places, attend
from triptych_worker.kernels.flash import Span, Spans
from triptych_worker.kernels.product import Weight

HIDDEN, BETWEEN, VOCABULARY, LAYERS = 768, 2048, 20676, 12
QKV = 1280  # 12 heads of 64 and twice 4 of keys and values
LAYER = ((QKV, HIDDEN), (HIDDEN, HIDDEN), (BETWEEN, HIDDEN), (BETWEEN, HIDDEN), (HIDDEN, BETWEEN))
SEQUENCES, KV_HEADS, SHARING, SIZE = 8, 4, 3, 64
PAST, RANGE = 340, 512  # tokens that are seen, and that a sequence has room for
PATCHES, WINDOW, VISION_HEADS, PROMPT = 1024, 64, 8, 274


def main() -> None:
    """Prints three tables."""
    options = _parser().parse_args()
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    with torch.inference_mode():
        _products(dtype, options.rows, options.rounds)
        _attention(dtype, options.rounds)
        _many(dtype, options.rounds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 274, 1024])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def _products(dtype: torch.dtype, counts: list[int], rounds: int) -> None:
    shapes = [*LAYER * LAYERS, (VOCABULARY, HIDDEN)]
    weights = [torch.randn(shape).to(dtype) for shape in shapes]
    ours = [Weight(weight) for weight in weights]
    packed = [torch.ops.mkldnn._reorder_linear_weight(weight, 8) for weight in weights]
    size = sum(weight.nbytes for weight in weights)
    print(f"products with {size / 1e6:.0f} MB of weights, {dtype}\n")
    print("| rows | ours, ms | oneDNN, packed, ms | PyTorch, ms | ours, GB/s | ours, GFLOP/s |")
    print("|---:|---:|---:|---:|---:|---:|")
    for count in counts:
        rows = {width: torch.randn(count, width).to(dtype) for width in (HIDDEN, BETWEEN)}
        seconds = _in_turn(
            {
                "ours": lambda rows=rows: [one.times(rows[one.inputs]) for one in ours],
                "oneDNN": lambda rows=rows: [
                    torch.ops.mkldnn._linear_pointwise(rows[k], one, None, "none", [], "")
                    for one, (_, k) in zip(packed, shapes, strict=True)
                ],
                "PyTorch": lambda rows=rows: [linear(rows[one.shape[1]], one) for one in weights],
            },
            rounds,
        )
        operations = 2 * count * size / dtype.itemsize
        print(
            f"| {count} | {' | '.join(f'{1000 * one:.1f}' for one in seconds.values())}"
            f" | {size / seconds['ours'] / 1e9:.1f} | {operations / seconds['ours'] / 1e9:.0f} |",
            flush=True,
        )


def _attention(dtype: torch.dtype, rounds: int) -> None:
    pool = torch.randn(LAYERS, 2, KV_HEADS, SEQUENCES * RANGE, SIZE).to(dtype)
    query = torch.randn(SEQUENCES, KV_HEADS * SHARING, SIZE).to(dtype)
    starts = [RANGE * number for number in range(SEQUENCES)]
    places = Places(starts, [PAST] * SEQUENCES)
    ranges = [pool[:, :, :, start : start + PAST].unsqueeze(2) for start in starts]
    grouped = query.view(SEQUENCES, 1, KV_HEADS, SHARING, SIZE).unbind(0)
    seconds = _in_turn(
        {
            "ours": lambda: [attend(query, layer, places, SIZE**-0.5) for layer in pool],
            "PyTorch": lambda: [
                scaled_dot_product_attention(one, *kv[layer])
                for layer in range(LAYERS)
                for one, kv in zip(grouped, ranges, strict=True)
            ],
        },
        rounds,
    )
    read = SEQUENCES * PAST * pool.nbytes / pool.shape[3]
    print(f"\nattention of one token each of {SEQUENCES} sequences over {PAST}, {LAYERS} layers\n")
    print("| ours, ms | PyTorch, ms | ours, GB/s |\n|---:|---:|---:|")
    print(
        f"| {' | '.join(f'{1000 * one:.1f}' for one in seconds.values())}"
        f" | {read / seconds['ours'] / 1e9:.1f} |"
    )


def _many(dtype: torch.dtype, rounds: int) -> None:
    print("\nattention of many tokens, one layer\n")
    print("| what | ours, ms | PyTorch, ms | ours, GFLOP/s |\n|---|---:|---:|---:|")
    rows = torch.randn(PATCHES, 3, VISION_HEADS, SIZE).to(dtype)
    for length in (WINDOW, PATCHES):
        count = PATCHES // length
        what = f"{count} x {length} patches, {VISION_HEADS} heads"
        spans = Spans(
            [Span(first, length, first, length) for first in range(0, PATCHES, length)],
            causal=False,
        )
        query, keys, values = rows.unbind(1)
        parts = rows.view(count, length, *rows.shape[1:]).transpose(1, 3).unbind(2)
        ways = {
            "ours": partial(flash.attend, query, keys, values, spans, SIZE**-0.5),
            "PyTorch": partial(_as_rows, *parts),
        }
        _line(what, PATCHES * length * VISION_HEADS, _in_turn(ways, rounds))
    heads = KV_HEADS * SHARING
    query = torch.randn(PROMPT, heads, SIZE).to(dtype)
    kv = torch.randn(2, KV_HEADS, RANGE, SIZE).to(dtype)
    keys, values = kv.transpose(1, 2)
    alone = Spans([Span(0, PROMPT, 0, 1)], causal=True)
    causal = partial(_as_rows, is_causal=True, enable_gqa=True)
    ways = {
        "ours": partial(flash.attend, query, keys, values, alone, SIZE**-0.5),
        "PyTorch": partial(causal, query.transpose(0, 1)[None], *kv[:, None, :, :PROMPT]),
    }
    seen = PROMPT * (PROMPT + 1) // 2
    _line(f"a prompt of {PROMPT}, {heads} heads", seen * heads, _in_turn(ways, rounds))


def _as_rows(*operands: torch.Tensor, **options: bool) -> torch.Tensor:
    """PyTorch's attention with its output laid out as ours is."""
    return scaled_dot_product_attention(*operands, **options).transpose(1, 2).flatten(2)


def _line(what: str, pairs: int, seconds: Mapping[str, float]) -> None:
    """Of so many pairs of a query and a key, each multiplied twice."""
    times = " | ".join(f"{1000 * one:.2f}" for one in seconds.values())
    print(f"| {what} | {times} | {4 * pairs * SIZE / seconds['ours'] / 1e9:.0f} |")


def _in_turn(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Medians in seconds."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if turn:  # the first warms up
                took[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in took.items()}


if __name__ == "__main__":
    main()
