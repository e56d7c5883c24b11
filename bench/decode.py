"""One decode step of the language model by itself: ``python -m bench.decode``.

With ``--woken`` another thread has shared in an operation before and stays, as any thread of a
worker once did: libgomp then has helpers sleep between operations. How long they wait awake
otherwise is ``GOMP_SPINCOUNT``, which is read when the program starts.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

import torch
from triptych_worker.language.attention import Segment
from triptych_worker.language.model import LanguageModel, PackedBatch
from triptych_worker.language.pool import KvPool
from triptych_worker.weights import Part, open_folder

from bench.model import model_folder

PAST = 300  # tokens before the one that is computed
RANGE = 512  # tokens of the pool for each sequence
WARM_UP = 5


def main() -> None:
    """Prints one row per number of sequences: milliseconds of a step, and cores that it kept."""
    options = _parser().parse_args()
    torch.set_num_threads(options.threads)
    dtype, device = getattr(torch, options.dtype), torch.device("cpu")
    model = LanguageModel(open_folder(model_folder(), Part.LANGUAGE), dtype, device)
    pool = KvPool(model.layout, max(options.sequences) * RANGE, device)
    pool.tensor.normal_()
    if options.woken:
        _share_and_stay()
    print("| sequences | a step, ms | cores |")
    print("|---|---|---|")
    for count in options.sequences:
        seconds, cores = _measured(model, pool, _batch(count), options.steps)
        print(f"| {count} | {seconds * 1000:.1f} | {cores:.2f} |", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--woken", action="store_true", help="let another thread share once before")
    return parser


def _share_and_stay() -> None:
    shared = threading.Event()

    def once() -> None:
        torch.ones(1 << 22).mul(2)
        shared.set()
        threading.Event().wait()

    threading.Thread(target=once, daemon=True).start()
    shared.wait()


def _batch(count: int) -> PackedBatch:
    return PackedBatch(
        token_ids=torch.arange(count) + 100,
        positions=torch.full((3, count), PAST),
        visual=None,
        segments=tuple(Segment(number * RANGE, PAST, 1) for number in range(count)),
        logit_rows=tuple(range(count)),
    )


def _measured(
    model: LanguageModel, pool: KvPool, batch: PackedBatch, steps: int
) -> tuple[float, float]:
    """The median of a step in seconds, and the cores kept busy over all of them."""
    for _ in range(WARM_UP):
        model.forward(batch, pool)
    times = []
    used, began = time.process_time(), time.perf_counter()
    for _ in range(steps):
        start = time.perf_counter()
        model.forward(batch, pool)
        times.append(time.perf_counter() - start)
    cores = (time.process_time() - used) / (time.perf_counter() - began)
    return statistics.median(times), cores


if __name__ == "__main__":
    main()
