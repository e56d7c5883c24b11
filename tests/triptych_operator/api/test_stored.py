from typing import Annotated, Any

import pytest
from pydantic import BaseModel, JsonValue
from triptych_operator.api.stored import as_stored


class Part(BaseModel):
    size: int = 1


class Whole(BaseModel):
    number: int | None = None
    name: str = ""
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    words: dict[str, str] = {}
    scalars: dict[str, Annotated[str | int | None, "said about it"]] = {}
    free: dict[str, JsonValue] = {}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"number": 2.0}, {"number": 2}),
        ({"number": 1.5}, {"number": 1.5}),
        ({"number": True}, {"number": True}),
        ({"number": 2**63 - 1}, {"number": 2**63 - 1}),
        ({"number": 2**63}, {"number": float(2**63)}),
        ({"name": None}, {}),
        ({"part": None, "parts": None, "words": None}, {"part": None}),
        ({"part": {"size": None}}, {"part": {}}),
        ({"parts": [{"size": None}, None]}, {"parts": [{}, None]}),
        ({"words": {"a": None, "b": "c"}}, {"words": {"b": "c"}}),
        ({"scalars": {"a": None}}, {"scalars": {"a": None}}),
        ({"free": {"a": None, "b": [None, {"c": None, "d": 1.0}]}},) * 2,
        ({"unknown": None}, {"unknown": None}),
    ],
)
def test_nulls_say_nothing_where_none_can_be_and_whole_numbers_are_integers(
    given: Any, stored: Any
) -> None:
    result = as_stored(given, Whole)
    assert result == stored
    assert repr(result) == repr(stored).replace("'d': 1.0", "'d': 1")  # 1.0 equals 1
