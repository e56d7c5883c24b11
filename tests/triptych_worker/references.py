"""What a whole transformers model answers, and the same request in the words of the worker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from triptych_contract.fingerprints import NO_TENANT
from triptych_worker.domain import GenerateInput, Handle, MediaItem, Prompt, Sampling, Span

FINGERPRINT = "ab" * 32
Part = str | Image.Image  # of a user's message


@dataclass(frozen=True)
class Answered:
    """``gaps[i]`` is by how much token i's logit leads the runner-up's."""

    token_ids: tuple[int, ...]
    gaps: tuple[float, ...]
    text: str


@dataclass(frozen=True)
class Picture:
    """One picture of a prompt: where it goes and what its embedding is."""

    key: bytes
    rows: torch.Tensor  # [visual tokens, width on the wire]
    grid: tuple[int, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Case:
    """One request and transformers' answer to it."""

    token_ids: tuple[int, ...]
    pictures: tuple[Picture, ...]
    answered: Answered

    def request(
        self,
        publish: Callable[[Picture], Handle],
        sampling: Sampling,
        fingerprint: str = FINGERPRINT,
    ) -> GenerateInput:
        """The request, with embeddings that ``publish`` leases."""
        media = tuple(
            MediaItem(publish(picture), picture.spans, picture.grid) for picture in self.pictures
        )
        prompt = Prompt(self.token_ids, media)
        return GenerateInput("test", fingerprint, prompt, sampling, NO_TENANT)


def noise(width: int, height: int, seed: int) -> Image.Image:
    """A picture like no other of another seed."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8)
    return Image.fromarray(pixels.numpy())


def message_cases() -> dict[str, Sequence[Part]]:
    """The shapes of prompts whose answers must be exact."""
    first, second, third = noise(112, 112, 1), noise(56, 140, 2), noise(168, 84, 3)
    return {
        "text only": ["How many shapes are there?"],
        "one image": [first, "What is in the picture?"],
        "three images of different sizes": [first, second, third, "Compare them."],
        "text between images": ["Is", first, "equal to", second, "or not?"],
        "two equal images": [second, second, "They are equal."],
    }


class Reference:
    """A whole model of transformers, loaded from a folder."""

    def __init__(self, folder: Path) -> None:
        self.processor = AutoProcessor.from_pretrained(folder)
        self.model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()

    def case(self, parts: Sequence[Part], max_tokens: int, more: Sequence[int] = ()) -> Case:
        """The request that a user's message of ``parts`` makes, with its greedy answer; ``more``
        are tokens after it, such as a former answer and the next question."""
        images = [part for part in parts if not isinstance(part, str)]
        inputs = _longer(self._inputs(parts, images), more)
        token_ids = tuple(inputs["input_ids"][0].tolist())
        return Case(token_ids, self._pictures(token_ids, images), self._answer(inputs, max_tokens))

    def _inputs(self, parts: Sequence[Part], images: list[Image.Image]) -> dict[str, torch.Tensor]:
        content = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
            for part in parts
        ]
        text = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
        return dict(self.processor(text=[text], images=images or None, return_tensors="pt"))

    def _answer(self, inputs: dict[str, torch.Tensor], max_tokens: int) -> Answered:
        output = self.model.generate(
            **inputs,
            max_new_tokens=max_tokens,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
        token_ids = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        best_two = torch.stack(output.logits)[:, 0].topk(2).values
        gaps = (best_two[:, 0] - best_two[:, 1]).tolist()
        text = self.processor.tokenizer.decode(token_ids, skip_special_tokens=True)
        return Answered(tuple(token_ids), tuple(gaps), text)

    def _pictures(
        self, token_ids: tuple[int, ...], images: list[Image.Image]
    ) -> tuple[Picture, ...]:
        spans = _spans(token_ids, self.model.config.image_token_id)
        pictures = []
        for image in images:
            rows, grid = self._features(image)
            taken = _take(spans, rows.shape[0])
            key = hashlib.sha256(image.tobytes()).digest()
            pictures.append(Picture(key, rows, grid, taken))
        assert not spans
        return tuple(pictures)

    @torch.inference_mode()
    def _features(self, image: Image.Image) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Embedding rows as they travel, from transformers' own vision part."""
        pixels = dict(self.processor.image_processor([image], return_tensors="pt"))
        pixels.pop("rows", None), pixels.pop("cols", None)
        output = self.model.get_image_features(**pixels)
        rows = torch.cat(list(output.pooler_output))
        deepstack = getattr(output, "deepstack_features", None) or []
        rows = torch.cat([rows, *(torch.cat(list(level)) for level in deepstack)], dim=1)
        grid = pixels.get("image_grid_thw")
        return rows, () if grid is None else tuple(grid[0].tolist())


def _longer(inputs: dict[str, torch.Tensor], more: Sequence[int]) -> dict[str, torch.Tensor]:
    """``inputs`` with tokens of text after them."""
    after = {
        "input_ids": torch.tensor([list(more)], dtype=torch.long),
        "attention_mask": torch.ones(1, len(more), dtype=torch.long),
        "mm_token_type_ids": torch.zeros(1, len(more), dtype=torch.long),
    }
    longer = {
        name: torch.cat([inputs[name], rest], 1) for name, rest in after.items() if name in inputs
    }
    return {**inputs, **longer}


def _spans(token_ids: tuple[int, ...], placeholder: int) -> list[Span]:
    """Runs of placeholder tokens."""
    spans: list[Span] = []
    for index, token_id in enumerate(token_ids):
        if token_id != placeholder:
            continue
        if spans and spans[-1].offset + spans[-1].length == index:
            spans[-1] = Span(spans[-1].offset, spans[-1].length + 1)
        else:
            spans.append(Span(index, 1))
    return spans


def _take(spans: list[Span], rows: int) -> tuple[Span, ...]:
    """Takes the first spans off the list, as many as ``rows`` fill."""
    taken: list[Span] = []
    while sum(span.length for span in taken) < rows:
        taken.append(spans.pop(0))
    assert sum(span.length for span in taken) == rows
    return tuple(taken)
