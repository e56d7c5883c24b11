"""A second lesson for the vision tower: every token says in words what lies in its cell.

Through the language model alone the tower learns only once attention has found its tokens. Here
each visual token is held against the embeddings of the words for its cell: colour, shape, row,
column. That teaches the tower from the first step, and it lets a word find the tokens that it
is about, because both now point the same way.
"""

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast
from triptych_models.scenes import COLOURS, SHAPES, Item, Scene

_NOTHING = "nothing"
_COLOUR_WORDS = (_NOTHING, *COLOURS)
_SHAPE_WORDS = (_NOTHING, *SHAPES)


class Readout:
    """Compares visual tokens with the word embeddings of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._choices = [
            torch.tensor([tokenizer(f" {word}")["input_ids"][0] for word in words])
            for words in (_COLOUR_WORDS, _SHAPE_WORDS, ("top", "bottom"), ("left", "right"))
        ]

    def loss(
        self, embeddings: torch.Tensor, words: torch.Tensor, scenes: tuple[Scene, ...]
    ) -> torch.Tensor:
        """The loss over pictures of one size; embeddings are [pictures, tokens, width]."""
        pictures, tokens, width = embeddings.shape
        half = round(tokens**0.5) // 2
        scaled = embeddings * embeddings.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        cells = scaled.reshape(pictures, 2, half, 2, half, width).transpose(2, 3)
        cells = cells.reshape(pictures * 4, half * half, width)
        wanted = torch.tensor([_classes(scene, place) for scene in scenes for place in range(4)])
        losses = [
            nn.functional.cross_entropy(
                (cells @ words[choice].T).flatten(0, 1),
                wanted[:, column].repeat_interleave(half * half),
            )
            for column, choice in enumerate(self._choices)
        ]
        return torch.stack(losses).mean()


def _classes(scene: Scene, place: int) -> tuple[int, int, int, int]:
    """Which of each choice's words is right for this cell."""
    cell: Item | None = scene.cells[place]
    colour = _COLOUR_WORDS.index(cell.colour if cell else _NOTHING)
    shape = _SHAPE_WORDS.index(cell.shape if cell else _NOTHING)
    return colour, shape, place // 2, place % 2
