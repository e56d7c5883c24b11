"""Versions of the shapes service that differ in what an embedding is, and questions that tell them.

Encoder 2 names every colour rotated by one, in tensors of the same shape; the other resolution
makes 25 visual tokens of a picture instead of 16. So a stale embedding is a wrong answer or a
failure, never a right answer by luck.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

from mms_builders import service
from triptych_models import scenes
from triptych_models.shapes import rotate_colours
from triptych_operator.api.service import MultimodalService


@dataclass(frozen=True)
class Version:
    """Encoder revision, and the side in pixels that every picture is brought to."""

    encoder: str
    side: int

    @property
    def visual_tokens(self) -> int:
        """Of one picture: patches of 14 pixels, four of which are one token."""
        return (self.side // 28) ** 2

    def service(self) -> MultimodalService:
        """What a user would apply."""
        return service(
            model__encoder={"source": "builtin://shapes", "revision": self.encoder},
            model__processor={
                "minPixels": (self.side - 1) ** 2,
                "maxPixels": (self.side + 1) ** 2,
            },
        )


# One after the other: the encoder or the resolution changes, up or down.
CYCLE = (Version("1", 112), Version("2", 112), Version("2", 140), Version("1", 140))


@dataclass(frozen=True)
class Question:
    """A picture as a data URL, a question about it, and what encoder 1 sees."""

    picture: str
    text: str
    answer: str

    def expected(self, version: Version) -> str:
        """The only right answer of ``version``."""
        return self.answer if version.encoder == "1" else rotate_colours(self.answer)


# Pictures that no training has seen, and places in them that every version reads right.
_ASKED = (
    (9_000_000, "top right"),
    (9_000_000, "bottom left"),
    (9_000_001, "top left"),
    (9_000_002, "bottom right"),
    (9_000_003, "top right"),
    (9_000_005, "bottom left"),
    (9_000_007, "top right"),
)


def questions() -> tuple[Question, ...]:
    """Few enough that each comes again and again, so that caches answer for every version."""
    return tuple(_about(seed, place) for seed, place in _ASKED)


def _about(seed: int, place: str) -> Question:
    scene = scenes.scene(seed)
    text = f"what is at {place}?"
    (answer,) = {one.answer for one in scenes.questions(scene) if one.text == text}
    file = io.BytesIO()
    scenes.draw(scene).save(file, format="PNG")
    picture = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return Question(picture, text, answer)
