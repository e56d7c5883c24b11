"""Conversations as tensors: what the chat template and the processor would make of them, faster.

`prompt_ids` must equal the template followed by the tokenizer; a test holds it to that.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from transformers import Qwen2_5_VLProcessor
from triptych_models.scenes import Scene, draw

from training.conversations import Conversation, Turn

IGNORED = -100
# Kind of the turns whose answer may be copied from an earlier one; see `Progress`.
LATER = "later"
_NOISE = 0.02


@dataclass(frozen=True)
class Batch:
    """Right-padded sequences; `turns` numbers the turn of every supervised token from 0."""

    input_ids: torch.Tensor
    labels: torch.Tensor
    turns: torch.Tensor
    kinds: tuple[str, ...]
    pixel_values: torch.Tensor
    grid: torch.Tensor
    scenes: tuple[Scene, ...]


class Collator:
    """Makes batches with one tokenizer and image processor, remembering encoded sentences."""

    def __init__(self, processor: Qwen2_5_VLProcessor) -> None:
        self._processor = processor
        self._encode = lru_cache(maxsize=50_000)(self._encode_text)

    def _encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(self._processor.tokenizer(text)["input_ids"])

    def turn_ids(self, turn: Turn, tokens: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One exchange: the ids up to the answer, and those of the answer with its end."""
        picture = "<|vision_start|>" + "<|image_pad|>" * tokens + "<|vision_end|>"
        numbers = range(1, turn.pictures + 1)
        labels = [f"picture {number}: " if turn.pictures > 1 else "" for number in numbers]
        pictures = "".join(label + picture for label in labels)
        asked = f"<|im_start|>user\n{pictures}{turn.text}<|im_end|>\n<|im_start|>assistant\n"
        return self._encode(asked), self._encode(f"{turn.answer}<|im_end|>")

    def batch(self, talks: list[Conversation], side: int, noise: torch.Generator) -> Batch:
        """The conversations with every picture drawn `side` pixels square."""
        tokens = (side // 28) ** 2
        rows: list[list[int]] = []
        labels: list[list[int]] = []
        turns: list[list[int]] = []
        kinds: list[str] = []
        newline = self._encode("\n")
        for talk in talks:
            system = f"<|im_start|>system\n{talk.system}<|im_end|>\n" if talk.system else ""
            row = list(self._encode(system)) if system else []
            label, number = [IGNORED] * len(row), [0] * len(row)
            for turn in talk.turns:
                asked, answer = self.turn_ids(turn, tokens)
                row += [*asked, *answer, *newline]
                label += [IGNORED] * len(asked) + [*answer] + [IGNORED] * len(newline)
                number += [len(kinds)] * (len(asked) + len(answer) + len(newline))
                kinds.append(turn.kind if turn.pictures or turn.kind == "text" else LATER)
            rows.append(row)
            labels.append(label)
            turns.append(number)
        scenes = tuple(scene for talk in talks for scene in talk.scenes)
        pixels, grid = self.pixels(scenes, side)
        pixels = pixels + _NOISE * torch.randn(pixels.shape, generator=noise)
        return Batch(
            _padded(rows, 0),
            _padded(labels, IGNORED),
            _padded(turns, 0),
            tuple(kinds),
            pixels,
            grid,
            scenes,
        )

    def pixels(self, scenes: tuple[Scene, ...], side: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The processor's patches and grid of every scene drawn `side` pixels square."""
        size = {"shortest_edge": (side - 1) ** 2, "longest_edge": (side + 1) ** 2}
        images = [draw(scene, side) for scene in scenes]
        made = self._processor.image_processor(images, size=size, return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]


def _padded(rows: list[list[int]], value: int) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])
