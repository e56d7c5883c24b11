"""The encoder against transformers: ``python -m bench.encoder``.

Pictures of 448 x 448 through the benchmark's Qwen2.5-VL: ``get_image_features`` once per picture,
and ours on the batch, in turns, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText
from triptych_worker.domain import EncodeInput
from triptych_worker.vision import load_vision

from bench.model import model_folder

GRID = (1, 32, 32)
TOKENS = 256
PATCH_VALUES = 3 * 2 * 14 * 14
TOLERANCE = {"float32": 1e-4, "bfloat16": 6e-2}


def main() -> None:
    """Prints one row per batch size: seconds of both, and their ratio."""
    options = _parser().parse_args()
    torch.set_num_threads(options.threads)
    folder = options.model or model_folder()
    whole = AutoModelForImageTextToText.from_pretrained(folder, dtype=options.dtype).eval().model
    vision = load_vision(folder, None, getattr(torch, options.dtype), torch.device("cpu"))
    print("| pictures | get_image_features in a loop, s | ours, s | ratio |")
    print("|---|---|---|---|")
    for batch in options.batches:
        items = _pictures(batch)
        _check(whole, vision.encode(items), items, TOLERANCE[options.dtype])
        theirs, ours = _in_turns(
            lambda items=items: _features(whole, items),
            lambda items=items: vision.encode(items),
            options.rounds,
        )
        ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
        columns = (statistics.median(theirs), statistics.median(ours), statistics.median(ratios))
        print(f"| {batch} | {columns[0]:.3f} | {columns[1]:.3f} | {columns[2]:.2f} |", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a Qwen2.5-VL folder; the benchmark's if absent")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float32")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def _pictures(count: int) -> list[EncodeInput]:
    generator = torch.Generator().manual_seed(count)
    patches = GRID[0] * GRID[1] * GRID[2]
    return [
        EncodeInput(
            key=bytes(32),
            tensors={"pixel_values": torch.randn(patches, PATCH_VALUES, generator=generator)},
            grid=GRID,
            visual_tokens=TOKENS,
        )
        for _ in range(count)
    ]


def _features(whole: Any, items: list[EncodeInput]) -> list[torch.Tensor]:
    grid = torch.tensor([GRID])
    with torch.inference_mode():
        return [
            whole.get_image_features(
                item.tensors["pixel_values"].to(whole.dtype), grid
            ).pooler_output[0]
            for item in items
        ]


def _check(
    whole: Any, ours: list[torch.Tensor], items: list[EncodeInput], tolerance: float
) -> None:
    for one, other in zip(_features(whole, items), ours, strict=True):
        difference = float((one - other).abs().max() / one.abs().max())
        if difference > tolerance:
            raise SystemExit(f"embeddings differ by {difference:.1e} of their scale")


def _in_turns(
    first: Callable[[], object], second: Callable[[], object], rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of both, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, seconds in zip((first, second), times, strict=True):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    main()
