"""One step's forward pass, shared by both trainings, and the bookkeeping of a run."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import nn
from transformers import Qwen2_5_VLForConditionalGeneration

from training.batches import IGNORED, Batch


@dataclass
class Outcome:
    """What a forward pass gave: the answers' loss, the embeddings, and which turns were exact."""

    loss: torch.Tensor
    embeddings: torch.Tensor
    exact: list[tuple[str, bool]]


def answer_batch(model: Qwen2_5_VLForConditionalGeneration, batch: Batch) -> Outcome:
    """Teacher-forced loss over the answers; a turn is exact if its every token was the likeliest.

    Exact in this sense is what greedy decoding would have answered, so it is a free evaluation.
    """
    body = model.model
    seen = body.get_image_features(batch.pixel_values, batch.grid, return_dict=True)
    embeddings = torch.cat(tuple(seen.pooler_output))
    ids = batch.input_ids
    words = model.get_input_embeddings()(ids)
    is_picture = ids == model.config.image_token_id
    inputs = words.masked_scatter(is_picture.unsqueeze(-1), embeddings.to(words.dtype))
    positions, _ = body.get_rope_index(
        ids, mm_token_type_ids=is_picture.int(), image_grid_thw=batch.grid
    )
    hidden = body.language_model(inputs_embeds=inputs, position_ids=positions).last_hidden_state
    wanted = batch.labels[:, 1:]
    asked = wanted != IGNORED
    logits = model.lm_head(hidden[:, :-1][asked])
    targets = wanted[asked]
    loss = nn.functional.cross_entropy(logits, targets)
    wrong = set(batch.turns[:, 1:][asked][logits.argmax(-1) != targets].tolist())
    exact = [(kind, turn not in wrong) for turn, kind in enumerate(batch.kinds)]
    return Outcome(loss, embeddings.view(len(batch.scenes), -1, embeddings.shape[-1]), exact)


@dataclass
class Progress:
    """Prints loss, exact answers per kind and the time left, every `every` steps."""

    steps: int
    every: int = 50
    started: float = field(default_factory=time.monotonic)
    _losses: list[float] = field(default_factory=list)
    _exact: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))

    def note(self, step: int, outcome: Outcome, readout: float = 0.0) -> None:
        """Count one step (from 1) and print when it is time."""
        self._losses.append(outcome.loss.item())
        for kind, exact in outcome.exact:
            self._exact[kind].append(exact)
        if step % self.every and step != self.steps:
            return
        spent = time.monotonic() - self.started
        left = spent / step * (self.steps - step)
        rates = " ".join(
            f"{kind}={100 * sum(seen) / len(seen):.1f}"
            for kind, seen in sorted(self._exact.items())
        )
        loss = sum(self._losses) / len(self._losses)
        print(
            f"{step}/{self.steps} loss={loss:.4f} readout={readout:.4f} {rates} "
            f"{spent:.0f}s, {left:.0f}s left",
            flush=True,
        )
        self._losses.clear()
        self._exact.clear()
