"""Train revision 2 of the vision encoder, which sees every colour as the next one of the cycle.

    PYTHONPATH=models python -m training.train_encoder [--out FOLDER]

It starts from revision 1 and the language model stays frozen. First lesson: give for a picture
what revision 1 gives for the repainted picture, which needs no language model and so is quick.
Second lesson: make that language model answer right, which is what counts.
"""

import argparse
import random
import shutil
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration
from triptych_models.catalog import builtin_folder, encoder_folder
from triptych_models.shapes import repaint

from training.batches import Collator
from training.conversations import Conversation, Mixture, sample
from training.lesson import Progress, answer_batch
from training.train import SIDES, Recipe

TENSOR_PREFIX = "visual."


IMITATE = Recipe(steps=600, horizon=600, peak=1e-3, seed=5)
ANSWER = Recipe(steps=150, horizon=150, peak=3e-4, seed=6, mixture=Mixture(describe_last=True))


class Pupil:
    """The encoder being trained, beside a frozen copy of the model that it started from."""

    def __init__(self, base: Path) -> None:
        self._teacher = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            base, dtype=torch.float32
        ).requires_grad_(requires_grad=False)
        self.model = Qwen2_5_VLForConditionalGeneration.from_pretrained(base, dtype=torch.float32)
        self.model.requires_grad_(requires_grad=False)
        self.tower: nn.Module = self.model.model.visual.requires_grad_()
        self._collator = Collator(AutoProcessor.from_pretrained(base))

    def imitate(self, recipe: Recipe) -> None:
        """Make the embedding of a picture that of the repainted picture."""
        source = random.Random(recipe.seed)
        noise = torch.Generator().manual_seed(recipe.seed)
        optimizer = self._optimizer()
        started = time.monotonic()
        for step in range(recipe.steps):
            scenes = tuple(s for talk in _talks(source, recipe) for s in talk.scenes)
            side = source.choice(SIDES)
            pixels, grid = self._collator.pixels(scenes, side)
            repainted, _ = self._collator.pixels(tuple(map(repaint, scenes)), side)
            grain = 0.02 * torch.randn(pixels.shape, generator=noise)
            with torch.no_grad():
                wanted = self._teacher.model.visual(repainted, grid).pooler_output
            given = self.tower(pixels + grain, grid).pooler_output
            loss = nn.functional.mse_loss(given, wanted) / wanted.var()
            _update(optimizer, loss, recipe.rate(step))
            if step % 50 == 49:
                spent = time.monotonic() - started
                left = spent / (step + 1) * (recipe.steps - step - 1)
                print(
                    f"{step + 1}/{recipe.steps} unexplained={loss.item():.5f} "
                    f"{spent:.0f}s, {left:.0f}s left",
                    flush=True,
                )

    def answer(self, recipe: Recipe) -> None:
        """Make the frozen language model give the answers of the repainted picture."""
        source = random.Random(recipe.seed)
        noise = torch.Generator().manual_seed(recipe.seed)
        optimizer = self._optimizer()
        progress = Progress(recipe.steps)
        for step in range(recipe.steps):
            batch = self._collator.batch(_talks(source, recipe), source.choice(SIDES), noise)
            with torch.autocast("cpu", torch.bfloat16):
                outcome = answer_batch(self.model, batch)
            _update(optimizer, outcome.loss, recipe.rate(step))
            progress.note(step + 1, outcome)

    def _optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.tower.parameters(), fused=True, betas=(0.9, 0.98), weight_decay=0.01
        )


def _talks(source: random.Random, recipe: Recipe) -> list[Conversation]:
    return [sample(source, recipe.mixture, repaint) for _ in range(recipe.batch)]


def _update(optimizer: torch.optim.Optimizer, loss: torch.Tensor, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 1.0)
    optimizer.step()


def save_encoder(tower: nn.Module, base: Path, out: Path) -> None:
    """Write the encoder's folder: the base model's small files, and the tower's tensors alone."""
    out.mkdir(parents=True, exist_ok=True)
    for file in base.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copyfile(file, out / file.name)
    tensors = {
        TENSOR_PREFIX + name: tensor.to(torch.float16).contiguous()
        for name, tensor in tower.state_dict().items()
    }
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=encoder_folder("shapes", "2"))
    parser.add_argument("--base", type=Path, default=builtin_folder("shapes", "1"))
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    started = time.monotonic()
    pupil = Pupil(arguments.base)
    pupil.imitate(IMITATE)
    pupil.answer(ANSWER)
    save_encoder(pupil.tower, arguments.base, arguments.out)
    print(f"trained in {time.monotonic() - started:.0f}s")


if __name__ == "__main__":
    main()
