"""Questions about pictures with the only right answer, asked by the official client."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import openai
from triptych_models import scenes

MODEL = "shapes"


@dataclass(frozen=True)
class Question:
    """``pictures`` are PNG files' bytes."""

    pictures: tuple[bytes, ...]
    text: str
    answer: str


def about(seed: int, kind: str) -> Question:
    """A question of one kind about the picture of a seed that no training has seen."""
    scene = scenes.scene(seed)
    found = next(it for it in scenes.questions(scene) if it.kind == kind)
    return Question((_png(scene),), found.text, found.answer)


def about_two(first: int, second: int) -> Question:
    """A question about two pictures at once."""
    pair = (scenes.scene(first), scenes.scene(second))
    found = next(it for it in scenes.pair_questions(*pair) if it.kind == "count_of_two")
    return Question(tuple(_png(scene) for scene in pair), found.text, found.answer)


def ask(client: openai.OpenAI, question: Question, *, stream: bool = False) -> str:
    """The answer, whole or put together from what was streamed."""
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": contents(question)}],
        max_tokens=64,
        temperature=0,
        stream=stream,
    )
    if isinstance(answer, openai.Stream):
        parts = [chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices]
        assert len(parts) > 1
        return "".join(parts).strip()
    return (answer.choices[0].message.content or "").strip()


def contents(question: Question) -> Any:
    """The parts of the message that asks it."""
    pictures = [
        {"type": "image_url", "image_url": {"url": _data_url(picture)}}
        for picture in question.pictures
    ]
    return [*pictures, {"type": "text", "text": question.text}]


def _png(scene: scenes.Scene) -> bytes:
    file = io.BytesIO()
    scenes.draw(scene).save(file, format="PNG")
    return file.getvalue()


def _data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"
