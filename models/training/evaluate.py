"""Judge the published folders as a user meets them: loaded from disk, asked once, greedy.

    PYTHONPATH=models python -m training.evaluate [--encoder 2]

Prints exact answers per kind and in all, and exits with 1 if any suite is under its bar.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor
from triptych_models.catalog import builtin_folder, encoder_folder
from triptych_models.scenes import Scene, draw
from triptych_models.shapes import repaint

from training.cases import Case, Suite, suites
from training.train_encoder import TENSOR_PREFIX

_BATCH = 50


class Judge:
    """A loaded model that answers cases in batches."""

    def __init__(self, folder: Path, encoder: Path) -> None:
        self._model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        self.processor: Qwen2_5_VLProcessor = AutoProcessor.from_pretrained(encoder)
        if encoder != folder:
            tensors = load_file(encoder / "model.safetensors")
            tower = {name.removeprefix(TENSOR_PREFIX): t.float() for name, t in tensors.items()}
            self._model.model.visual.load_state_dict(tower)

    def answers(self, cases: list[Case]) -> list[str]:
        """What greedy decoding says to each case; the cases share pictures' number and size."""
        prompts = [
            self.processor.apply_chat_template([case.message()], add_generation_prompt=True)
            for case in cases
        ]
        side = cases[0].side
        size = {"shortest_edge": (side - 1) ** 2, "longest_edge": (side + 1) ** 2}
        images = [draw(scene, side) for case in cases for scene in case.scenes]
        inputs = self.processor(
            text=prompts, images=images or None, size=size, padding=True, return_tensors="pt"
        )
        with torch.inference_mode():
            made = self._model.generate(**inputs)
        new = made[:, inputs["input_ids"].shape[1] :]
        said: list[str] = self.processor.batch_decode(new, skip_special_tokens=True)
        return said


def _batches(cases: tuple[Case, ...]) -> Iterator[list[Case]]:
    """Cases of one kind together, since they end after about as many tokens."""
    ordered = sorted(cases, key=lambda case: case.kind)
    for start in range(0, len(ordered), _BATCH):
        yield ordered[start : start + _BATCH]


def judge_suite(judge: Judge, suite: Suite) -> bool:
    """Print the suite's table; whether it reaches its bar."""
    asked: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    started = time.monotonic()
    for cases in _batches(suite.cases):
        for case, said in zip(cases, judge.answers(cases), strict=True):
            asked[case.kind] += 1
            exact[case.kind] += said == case.answer
    total, right = asked.total(), exact.total()
    print(f"\n{suite.name} (bar {suite.bar:.0%}, {time.monotonic() - started:.0f}s)")
    for kind, number in sorted(asked.items()):
        print(f"  {kind:22} {exact[kind]:5} of {number:5}  {exact[kind] / number:7.2%}")
    print(f"  {'all':22} {right:5} of {total:5}  {right / total:7.2%}", flush=True)
    return right >= suite.bar * total


def main() -> None:
    """Read the command line, judge every suite, and exit by the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=builtin_folder("shapes", "1"))
    parser.add_argument("--encoder", choices=("1", "2"), help="only this revision, not both")
    parser.add_argument("--encoder-folder", type=Path, default=encoder_folder("shapes", "2"))
    parser.add_argument("--scenes", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    revisions = [arguments.encoder] if arguments.encoder else ["1", "2"]
    reached = []
    for revision in revisions:
        print(f"\nencoder revision {revision}, {arguments.scenes} held-out scenes")
        rotated = revision == "2"
        encoder = arguments.encoder_folder if rotated else arguments.folder
        judge = Judge(arguments.folder, encoder)
        asked = suites(arguments.scenes, repaint if rotated else _as_it_is)
        reached += [judge_suite(judge, suite) for suite in asked]
    sys.exit(0 if all(reached) else 1)


def _as_it_is(scene: Scene) -> Scene:
    return scene


if __name__ == "__main__":
    main()
