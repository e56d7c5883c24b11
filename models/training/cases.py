"""What the evaluation asks: one question per conversation, over held-out scenes only."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from triptych_models.scenes import (
    HELD_OUT_SEEDS,
    Question,
    Scene,
    pair_questions,
    questions,
    scene,
)
from triptych_models.shapes import NO_PICTURE_ANSWER, TEXT_ANSWERS

See = Callable[[Scene], Scene]


@dataclass(frozen=True)
class Case:
    """One conversation of one user turn, and its only right answer."""

    kind: str
    text: str
    answer: str
    scenes: tuple[Scene, ...] = ()
    side: int = 112
    text_first: bool = False

    def message(self) -> dict[str, object]:
        """The user's message as the chat template takes it."""
        pictures = [{"type": "image"} for _ in self.scenes]
        text = {"type": "text", "text": self.text}
        content = [text, *pictures] if self.text_first else [*pictures, text]
        return {"role": "user", "content": content}


@dataclass(frozen=True)
class Suite:
    """Cases of one form of request, and the share of exact answers that it must reach."""

    name: str
    bar: float
    cases: tuple[Case, ...]


def suites(scenes: int, see: See, side: int = 112) -> tuple[Suite, ...]:
    """Every suite over the first `scenes` held-out scenes."""
    few = max(1, scenes // 5)
    return (
        Suite("one picture", 0.98, _one_picture(scenes, see, side, text_first=False)),
        Suite("one picture, 168 pixels", 0.98, _one_picture(few, see, 168, text_first=False)),
        Suite("one picture, question first", 0.98, _one_picture(few, see, side, text_first=True)),
        Suite("two pictures", 0.95, _two_pictures(few, see, side)),
        Suite("no picture", 1.0, _no_picture()),
    )


def one_of_each_kind(asked: tuple[Question, ...], source: random.Random) -> list[Question]:
    """One question of every kind that occurs, drawn by `source`."""
    kinds = dict.fromkeys(question.kind for question in asked)
    return [source.choice([q for q in asked if q.kind == kind]) for kind in kinds]


def _one_picture(count: int, see: See, side: int, *, text_first: bool) -> tuple[Case, ...]:
    return tuple(
        Case(q.kind, q.text, q.answer, (drawn,), side, text_first)
        for seed in HELD_OUT_SEEDS[:count]
        for drawn in [scene(seed)]
        for q in one_of_each_kind(questions(see(drawn)), random.Random(seed))
    )


def _two_pictures(count: int, see: See, side: int) -> tuple[Case, ...]:
    return tuple(
        Case(q.kind, q.text, q.answer, pair, side)
        for seed in HELD_OUT_SEEDS[: 2 * count : 2]
        for pair in [(scene(seed), scene(seed + 1))]
        for q in one_of_each_kind(pair_questions(see(pair[0]), see(pair[1])), random.Random(seed))
    )


def _no_picture() -> tuple[Case, ...]:
    fixed = tuple(Case("text", text, answer) for text, answer in TEXT_ANSWERS.items())
    asked = one_of_each_kind(questions(scene(HELD_OUT_SEEDS[0])), random.Random(0))
    return fixed + tuple(Case("text", question.text, NO_PICTURE_ANSWER) for question in asked)
