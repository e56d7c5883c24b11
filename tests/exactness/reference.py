"""What the same model answers when transformers runs it whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

if TYPE_CHECKING:
    from exactness.questions import Question

# Two sums of the same float32 numbers in another order differ by some units in the last place of
# the largest logit. Only a choice between logits closer than this may go the other way.
ROUNDING = 64 * torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Answer:
    """Token ids without the end of sequence, and per token whether its choice was a near tie."""

    token_ids: tuple[int, ...]
    near_tie: tuple[bool, ...]


class Reference:
    """A whole model behind ``generate()``: greedy, float32."""

    def __init__(self, folder: Path) -> None:
        self._processor = AutoProcessor.from_pretrained(folder)
        self._model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        ends = self._model.generation_config.eos_token_id
        self.ends = frozenset([ends] if isinstance(ends, int) else ends or [])

    def answer(self, question: Question) -> Answer:
        text = self._processor.apply_chat_template(
            question.transformers(), add_generation_prompt=True, tokenize=False
        )
        inputs = self._processor(text=[text], images=question.pictures or None, return_tensors="pt")
        with torch.inference_mode():
            output = self._model.generate(
                **inputs,
                max_new_tokens=question.max_tokens,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        tokens = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        ties = [_near_tie(logits[0]) for logits in output.logits]
        if tokens and tokens[-1] in self.ends:
            tokens.pop()
        return Answer(tuple(tokens), tuple(ties))


def _near_tie(logits: torch.Tensor) -> bool:
    first, second = logits.topk(2).values.tolist()
    return first - second <= ROUNDING * logits.abs().max().item()
