"""Train revision 1 of `builtin://shapes`, the whole model, from nothing.

PYTHONPATH=models python -m training.train [--out FOLDER] [--resume CHECKPOINT --skip RECIPES]
"""

import argparse
import math
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor
from triptych_models.catalog import builtin_folder

from training.batches import Collator
from training.conversations import Mixture, sample
from training.folder import build_config, build_generation_config, build_processor
from training.lesson import Progress, answer_batch
from training.readout import Readout

CHECKPOINTS = Path.home() / ".cache/triptych/shapes/checkpoint"
SIDES = (112, 112, 112, 112, 168)
_READOUT_SHARE = 0.3
_CHECKPOINT_EVERY = 250


@dataclass(frozen=True)
class Recipe:
    """How long and how fast; a run may end before the cosine of `horizon` steps does."""

    steps: int
    horizon: int
    peak: float
    seed: int
    warmup: int = 20
    batch: int = 32
    mixture: Mixture = field(default_factory=Mixture)

    def rate(self, step: int) -> float:
        """Learning rate at a step: a short rise, then half a cosine down to nothing."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.horizon - self.warmup)
        return self.peak * 0.5 * (1 + math.cos(math.pi * done))


# The published weights. Each recipe starts a new optimizer and a new cosine; each was cut or ended
# when what it could teach was learned, and the next mixture asks more of what was still missing.
RECIPES = (
    Recipe(steps=500, horizon=2400, peak=1.2e-3, warmup=100, seed=1),
    Recipe(
        steps=250,
        horizon=750,
        peak=1.1e-3,
        seed=2,
        mixture=Mixture(two_pictures=0.2, colour=8, where=6, describe_last=True),
    ),
    Recipe(
        steps=500,
        horizon=600,
        peak=1.0e-3,
        seed=3,
        mixture=Mixture(two_pictures=0.2, colour=6, where=6, describe_last=True, hard=0.6),
    ),
    Recipe(
        steps=450,
        horizon=450,
        peak=8e-4,
        seed=4,
        mixture=Mixture(two_pictures=0.3, count_colour=5, where=8, describe_last=True, hard=0.5),
    ),
)


def train(
    model: Qwen2_5_VLForConditionalGeneration,
    processor: Qwen2_5_VLProcessor,
    recipe: Recipe,
    checkpoint: Path,
) -> None:
    """Run one recipe on the model, saving a checkpoint now and then."""
    torch.manual_seed(recipe.seed)
    source = random.Random(recipe.seed)
    noise = torch.Generator().manual_seed(recipe.seed)
    readout = Readout(processor.tokenizer)
    collator = Collator(processor)
    words = model.get_input_embeddings().weight
    optimizer = torch.optim.AdamW(
        model.parameters(), fused=True, betas=(0.9, 0.98), weight_decay=0.01
    )
    progress = Progress(recipe.steps)
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        talks = [sample(source, recipe.mixture) for _ in range(recipe.batch)]
        batch = collator.batch(talks, source.choice(SIDES), noise)
        with torch.autocast("cpu", torch.bfloat16):
            outcome = answer_batch(model, batch)
            said = readout.loss(outcome.embeddings, words, batch.scenes)
            loss = outcome.loss + _READOUT_SHARE * said
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress.note(step + 1, outcome, said.item())
        if (step + 1) % _CHECKPOINT_EVERY == 0:
            save_half(model, processor, checkpoint)


def save_half(
    model: Qwen2_5_VLForConditionalGeneration, processor: Qwen2_5_VLProcessor, out: Path
) -> None:
    """Write a complete folder with float16 weights, leaving the model itself as it is."""
    half = Qwen2_5_VLForConditionalGeneration(model.config)
    half.load_state_dict(model.state_dict())
    half.generation_config = build_generation_config(processor.tokenizer)
    half.to(torch.float16).save_pretrained(out)
    processor.save_pretrained(out)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=builtin_folder("shapes", "1"))
    parser.add_argument("--checkpoints", type=Path, default=CHECKPOINTS)
    parser.add_argument("--resume", type=Path, help="a checkpoint, to run the later recipes on")
    parser.add_argument("--skip", type=int, default=0, help="how many recipes it has had")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(RECIPES[0].seed)
    started = time.monotonic()
    if arguments.resume:
        processor = AutoProcessor.from_pretrained(arguments.resume)
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            arguments.resume, dtype=torch.float32
        )
    else:
        processor = build_processor()
        model = Qwen2_5_VLForConditionalGeneration(build_config(processor.tokenizer))
    for recipe in RECIPES[arguments.skip :]:
        train(model, processor, recipe, arguments.checkpoints)
    save_half(model, processor, arguments.out)
    print(f"trained in {time.monotonic() - started:.0f}s")


if __name__ == "__main__":
    main()
