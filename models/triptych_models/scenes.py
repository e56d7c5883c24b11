"""Scenes of coloured shapes: what they hold, how they look and what is true of them.

Training, evaluation, tests and demonstrations all use this very code, so an answer that is checked
against `questions()` is checked against what the model was taught. The picture is a board of four
cells, each with its own pale tint, so that every patch shows where it lies: the vision tower's
rotary positions are relative, and "where is ..." is otherwise the slowest to learn.
"""

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = ("red", "green", "blue", "yellow", "purple")
SHAPES = ("circle", "square", "triangle")
POSITIONS = ("top left", "top right", "bottom left", "bottom right")
KINDS = ("at", "count", "count_colour", "colour", "where", "describe")

# Layouts are split in ten parts by digest; these seeds draw only from part 0 and every other seed
# only from parts 1 to 9, so neither a held-out seed nor a held-out layout is ever trained on.
HELD_OUT_SEEDS = range(9_000_000, 10_000_000)
SPLIT_PARTS = 10

_NUMBERS = ("no", "one", "two", "three", "four")
_RGB = {
    "red": (214, 40, 40),
    "green": (36, 150, 60),
    "blue": (38, 84, 214),
    "yellow": (242, 200, 24),
    "purple": (140, 50, 168),
}
_TINTS = ((255, 255, 255), (226, 240, 248), (248, 236, 222), (226, 226, 226))
_OVERSAMPLE = 2


@dataclass(frozen=True)
class Item:
    """One shape in one cell; offsets and radius are fractions of the cell's side."""

    colour: str
    shape: str
    dx: float = 0.0
    dy: float = 0.0
    radius: float = 0.36

    @property
    def name(self) -> str:
        """How an answer calls it, such as `red circle`."""
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """Four cells in the order of `POSITIONS`; a cell holds one item or nothing."""

    cells: tuple[Item | None, Item | None, Item | None, Item | None]

    @property
    def items(self) -> tuple[Item, ...]:
        """The items that are there, in the order of `POSITIONS`."""
        return tuple(cell for cell in self.cells if cell is not None)


@dataclass(frozen=True)
class Question:
    """A question of one of the `KINDS`, with the only answer that counts as right."""

    kind: str
    text: str
    answer: str


def scene(seed: int) -> Scene:
    """The scene of a seed: one to four different items, always the same for the same seed."""
    source = random.Random(seed)
    held_out = seed in HELD_OUT_SEEDS
    while True:
        drawn = _random_scene(source)
        if is_held_out(drawn) == held_out:
            return drawn


def is_held_out(of: Scene) -> bool:
    """Whether this layout (colours, shapes and places, not offsets) is kept for evaluation."""
    layout = "|".join("" if cell is None else cell.name for cell in of.cells)
    return hashlib.sha256(layout.encode()).digest()[0] % SPLIT_PARTS == 0


def _random_scene(source: random.Random) -> Scene:
    places = source.sample(range(4), source.randint(1, 4))
    pairs = [(colour, shape) for colour in COLOURS for shape in SHAPES]
    chosen = dict(zip(places, source.sample(pairs, len(places)), strict=True))

    def cell(place: int) -> Item | None:
        if place not in chosen:
            return None
        colour, shape = chosen[place]
        jitter = (source.uniform(-0.06, 0.06), source.uniform(-0.06, 0.06))
        return Item(colour, shape, *jitter, radius=source.uniform(0.32, 0.38))

    return Scene((cell(0), cell(1), cell(2), cell(3)))


def draw(of: Scene, size: int = 112) -> "Image":
    """The picture of a scene, `size` pixels square, with smooth edges."""
    from PIL import Image, ImageDraw  # noqa: PLC0415 - questions need no Pillow

    side = size * _OVERSAMPLE
    half = side // 2
    picture = Image.new("RGB", (side, side))
    pen = ImageDraw.Draw(picture)
    for place, cell in enumerate(of.cells):
        left, top = (place % 2) * half, (place // 2) * half
        pen.rectangle((left, top, left + half, top + half), fill=_TINTS[place])
        if cell is None:
            continue
        x = left + half * (0.5 + cell.dx)
        y = top + half * (0.5 + cell.dy)
        r = half * cell.radius
        box = (x - r, y - r, x + r, y + r)
        if cell.shape == "circle":
            pen.ellipse(box, fill=_RGB[cell.colour])
        elif cell.shape == "square":
            pen.rectangle(box, fill=_RGB[cell.colour])
        else:
            pen.polygon(((x, y - r), (x - r, y + r), (x + r, y + r)), fill=_RGB[cell.colour])
    return picture.reduce(_OVERSAMPLE)


def questions(of: Scene) -> tuple[Question, ...]:
    """Every question that has exactly one right answer for this scene."""
    found = [
        Question("at", f"what is at {position}?", f"{_content(cell)} is at {position}.")
        for position, cell in zip(POSITIONS, of.cells, strict=True)
    ]
    found.append(Question("count", "how many shapes are there?", _count(len(of.items))))
    for colour in COLOURS:
        number = sum(item.colour == colour for item in of.items)
        text = f"how many {colour} shapes are there?"
        found.append(Question("count_colour", text, _count(number, colour)))
    for shape in SHAPES:
        same = [item for item in of.items if item.shape == shape]
        if len(same) == 1:
            answer = f"the {shape} is {same[0].colour}."
            found.append(Question("colour", f"which colour is the {shape}?", answer))
    for position, cell in zip(POSITIONS, of.cells, strict=True):
        if cell is not None:
            answer = f"the {cell.name} is at {position}."
            found.append(Question("where", f"where is the {cell.name}?", answer))
    found.append(Question("describe", "describe the picture.", _description(of)))
    return tuple(found)


def pair_questions(first: Scene, second: Scene) -> tuple[Question, ...]:
    """The questions about two pictures in one message; their kinds end in `_of_two`.

    Looking something up by colour or shape in one of two pictures was not learned, so it is not
    asked.
    """
    found = []
    for number, of in enumerate((first, second), start=1):
        for question in questions(of):
            if question.kind == "at":
                text = question.text.replace("?", f" in picture {number}?")
            elif question.kind == "count":
                text = question.text.replace("there?", f"in picture {number}?")
            elif question.kind == "describe":
                text = f"describe picture {number}."
            else:
                continue
            found.append(Question(f"{question.kind}_of_two", text, question.answer))
    return tuple(found)


def _content(cell: Item | None) -> str:
    return "nothing" if cell is None else f"a {cell.name}"


def _count(number: int, colour: str = "") -> str:
    what = f"{colour} shape" if colour else "shape"
    if number == 1:
        return f"there is one {what}."
    return f"there are {_NUMBERS[number]} {what}s."


def _description(of: Scene) -> str:
    parts = (f"{_content(c)} is at {p}" for p, c in zip(POSITIONS, of.cells, strict=True))
    return ", ".join(parts) + "."
