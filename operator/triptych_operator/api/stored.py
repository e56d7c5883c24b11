"""A manifest's data as the API server stores it. Pure.

To the server, JSON has one kind of number, so ``2.0`` is the integer 2; and null for a field that
cannot be null says that the field is not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Final, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue

from triptych_operator.json_values import Json

_INTEGER_LIMIT: Final = 2**63  # from here on the server computes in floating point


def as_stored(value: Json, kind: object) -> Json:
    """``value`` as it is stored where ``kind``, an annotation of a model, is expected."""
    if isinstance(value, list):
        return [as_stored(item, _of_item(kind)) for item in value]
    if isinstance(value, dict):
        kinds = {key: _of_field(kind, key) for key in value}
        return {
            key: as_stored(item, kinds[key])
            for key, item in value.items()
            if item is not None or _takes_null(kinds[key])
        }
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    return value


def _number(value: float) -> int | float:
    whole = isinstance(value, int) or value.is_integer()
    return int(value) if whole and abs(value) < _INTEGER_LIMIT else float(value)


def _of_item(kind: object) -> object:
    """What the items of a list are; free where that is not said."""
    kind = _without_null(kind)
    return get_args(kind)[0] if get_origin(kind) is tuple else JsonValue


def _of_field(kind: object, name: str) -> object:
    """What the field ``name`` of an object is; free where that is not said."""
    kind = _without_null(kind)
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _of_fields(kind).get(name, JsonValue)
    return JsonValue


@cache
def _of_fields(model: type[BaseModel]) -> Mapping[str, object]:
    """What each field of a model is, by its name in JSON."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _takes_null(kind: object) -> bool:
    return kind is JsonValue or NoneType in get_args(_unannotated(kind))


def _without_null(kind: object) -> object:
    """The one alternative beside null, such as the model of an optional field."""
    kind = _unannotated(kind)
    if get_origin(kind) not in (Union, UnionType):
        return kind
    real = [one for one in get_args(kind) if one is not NoneType]
    return real[0] if len(real) == 1 else kind


def _unannotated(kind: object) -> object:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
