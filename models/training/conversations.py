"""Conversations to learn from: several questions about the same picture in one sequence.

One question per picture teaches very slowly, because a picture costs far more than an answer and
most answers are one word of news. Several turns share the picture, and one of them describes all
of it. Every kind of question is often the first turn, since that is how it will be asked.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from triptych_models.scenes import (
    HELD_OUT_SEEDS,
    KINDS,
    Question,
    Scene,
    pair_questions,
    questions,
    scene,
)
from triptych_models.shapes import NO_PICTURE_ANSWER, TEXT_ANSWERS

_TURNS = 7
_TEXT_ONLY_SHARE = 0.05
_GREETING_SHARE = 0.08
_SYSTEM_SHARE = 0.1
_SYSTEM_TEXTS = (
    "you are a helpful assistant.",
    "answer the question about the picture.",
    "you are shapes, a small vision model. answer in one sentence.",
)


@dataclass(frozen=True)
class Mixture:
    """What is asked how often: shares of conversations, weights of the kinds after the first turn.

    "where" and "colour" lag behind the other kinds, so they are asked most. With `describe_last`
    no question repeats and the description ends the talk: few answers can be copied from an
    earlier one, so most must be read off the picture. A share of `hard` scenes has a colour twice
    among three or four items: elsewhere the colour alone nearly always tells the item, and the
    shape in a question was never learned.
    """

    two_pictures: float = 0.15
    at: int = 2
    count: int = 1
    count_colour: int = 2
    colour: int = 3
    where: int = 4
    describe_last: bool = False
    hard: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One exchange; its `pictures` stand before the text, as the chat template puts them."""

    kind: str
    text: str
    answer: str
    pictures: int = 0


@dataclass(frozen=True)
class Conversation:
    """Turns about the pictures of `scenes`, in the order in which the turns show them."""

    turns: tuple[Turn, ...]
    scenes: tuple[Scene, ...] = field(default=())
    system: str = ""


def _as_it_is(scene: Scene) -> Scene:
    return scene


def sample(
    source: random.Random, mixture: Mixture, see: Callable[[Scene], Scene] = _as_it_is
) -> Conversation:
    """A conversation drawn from a mixture.

    `see` turns a picture's scene into the one that the answers are about: an encoder that sees
    other colours learns from the same pictures with other answers.
    """
    system = source.choice(_SYSTEM_TEXTS) if source.random() < _SYSTEM_SHARE else ""
    draw = source.random()
    if draw < _TEXT_ONLY_SHARE:
        return Conversation(_text_turns(source), system=system)
    if draw < _TEXT_ONLY_SHARE + mixture.two_pictures:
        scenes: tuple[Scene, ...] = tuple(_train_scene(source, mixture.hard) for _ in range(2))
        asked = _choose_of_two(source, pair_questions(*map(see, scenes)))
    else:
        scenes = (_train_scene(source, mixture.hard),)
        asked = _choose(source, mixture, questions(see(scenes[0])))
    turns = [Turn(question.kind, question.text, question.answer) for question in asked]
    turns[0] = Turn(turns[0].kind, turns[0].text, turns[0].answer, len(scenes))
    if source.random() < _GREETING_SHARE:
        turns.insert(0, _greeting(source))
    return Conversation(tuple(turns), scenes, system)


def _train_scene(source: random.Random, hard: float = 0.0) -> Scene:
    wanted = hard > 0 and source.random() < hard
    while True:
        drawn = scene(source.randrange(HELD_OUT_SEEDS.start))
        if not wanted or _is_hard(drawn):
            return drawn


def _is_hard(drawn: Scene) -> bool:
    return len(drawn.items) > 2 and len({item.colour for item in drawn.items}) < len(drawn.items)


def _choose(source: random.Random, mixture: Mixture, asked: tuple[Question, ...]) -> list[Question]:
    """Seven questions, the first of any kind alike, one of them the description."""
    kinds = {kind: [q for q in asked if q.kind == kind] for kind in KINDS}
    first = source.choice([kind for kind in KINDS if kinds[kind]])
    weighted = [
        kind
        for kind in KINDS
        if kind != "describe" and kinds[kind]
        for _ in range(getattr(mixture, kind))
    ]
    rest = [source.choice(weighted) for _ in range(_TURNS - 1)]
    if first != "describe":
        rest[-1 if mixture.describe_last else source.randrange(len(rest))] = "describe"
    chosen = [source.choice(kinds[kind]) for kind in [first, *rest]]
    return list(dict.fromkeys(chosen)) if mixture.describe_last else chosen


def _choose_of_two(source: random.Random, asked: tuple[Question, ...]) -> list[Question]:
    kinds = sorted({question.kind for question in asked})
    chosen = [source.choice(kinds) for _ in range(_TURNS - 2)]
    return [source.choice([q for q in asked if q.kind == kind]) for kind in chosen]


def _greeting(source: random.Random) -> Turn:
    text = source.choice(tuple(TEXT_ANSWERS))
    return Turn("text", text, TEXT_ANSWERS[text])


def _text_turns(source: random.Random) -> tuple[Turn, ...]:
    turns = [_greeting(source) for _ in range(source.randint(1, 3))]
    asked = source.choice(questions(_train_scene(source)))
    turns.insert(source.randrange(len(turns) + 1), Turn("text", asked.text, NO_PICTURE_ANSWER))
    return tuple(turns)
