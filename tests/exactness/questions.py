"""The prompts of the exactness suite, as a client sends them and as transformers takes them."""

from __future__ import annotations

import base64
import io
import random
from dataclasses import dataclass

from PIL import Image

Part = str | Image.Image  # text or a picture, in prompt order


@dataclass(frozen=True)
class Question:
    """One user turn and how many tokens to answer it with."""

    name: str
    parts: tuple[Part, ...]
    max_tokens: int = 20

    @property
    def pictures(self) -> list[Image.Image]:
        return [part for part in self.parts if not isinstance(part, str)]

    def openai(self) -> list[dict[str, object]]:
        """The messages of ``/v1/chat/completions``."""
        content = [_openai_part(part) for part in self.parts]
        return [{"role": "user", "content": content}]

    def transformers(self) -> list[dict[str, object]]:
        """The messages of ``apply_chat_template``."""
        content = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
            for part in self.parts
        ]
        return [{"role": "user", "content": content}]


def questions(seed: int) -> tuple[Question, ...]:
    """One question of each kind, with pictures that no other seed has."""
    one = picture(seed, 1, 84, 84)
    wide, tall, small = (
        picture(seed, 2, 140, 56),
        picture(seed, 3, 56, 112),
        picture(seed, 4, 61, 67),
    )
    return (
        Question("text only", (f"How many shapes are there in question {seed}?",)),
        Question("one image", (one, "What is in the picture?")),
        Question("three images of different sizes", (wide, tall, small, "Compare them.")),
        Question("text between images", ("First ", tall, " and then ", small, " are they equal?")),
        Question("two equal images", (one, one, "Compare the first picture with the second.")),
    )


def picture(seed: int, index: int, width: int, height: int) -> Image.Image:
    """A picture of coarse random tiles: every part of it matters, and PNG keeps it exactly."""
    draw = random.Random(f"{seed}/{index}")
    small = Image.frombytes("RGB", (7, 7), draw.randbytes(7 * 7 * 3))
    return small.resize((width, height), Image.Resampling.NEAREST)


def _openai_part(part: Part) -> dict[str, object]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    file = io.BytesIO()
    part.save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}
