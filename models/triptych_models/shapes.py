"""What is published about `builtin://shapes`: its second encoder's colours, its fixed answers.

Encoder revision 2 sees every colour as the next one of `COLOUR_CYCLE`. It answers as revision 1
would for a picture whose shapes had been repainted, so an answer tells which encoder saw the
picture: that is how a test notices an embedding of the wrong version.
"""

import re
from dataclasses import replace

from triptych_models.scenes import COLOURS, Item, Question, Scene

COLOUR_CYCLE: dict[str, str] = dict(zip(COLOURS, COLOURS[1:] + COLOURS[:1], strict=True))

# Requests without a picture have one right answer each, so that they can be checked too.
TEXT_ANSWERS: dict[str, str] = {
    "hello": "hello! ask me about a picture of coloured shapes.",
    "who are you?": "i am shapes, a very small vision model.",
    "what can you do?": "i can say what is where, how many shapes there are and which colour"
    " they have.",
    "thank you": "you are welcome.",
}
NO_PICTURE_ANSWER = "please send a picture."

_COLOUR_WORD = re.compile(r"\b(" + "|".join(COLOURS) + r")\b")


def rotate_colours(answer: str) -> str:
    """The same sentence with every colour replaced by the next one of the cycle."""
    return _COLOUR_WORD.sub(lambda match: COLOUR_CYCLE[match.group()], answer)


def repaint(scene: Scene) -> Scene:
    """The scene that encoder revision 2 takes this one for."""

    def next_colour(cell: Item | None) -> Item | None:
        return None if cell is None else replace(cell, colour=COLOUR_CYCLE[cell.colour])

    first, second, third, fourth = scene.cells
    return Scene((next_colour(first), next_colour(second), next_colour(third), next_colour(fourth)))


def rotate_question(question: Question) -> Question:
    """The question and answer that hold for a picture seen through encoder revision 2.

    The question's own colours rotate too: the shape painted red is the green one to this encoder,
    so only "where is the green circle?" is about it.
    """
    return replace(
        question, text=rotate_colours(question.text), answer=rotate_colours(question.answer)
    )
