"""Lowers a model's JSON schema to a structural schema of the API server. Pure.

==========================================  =====================================================
pydantic writes                             the API server takes
==========================================  =====================================================
``$ref`` into ``$defs``                     the definition itself, in place
``anyOf: [X, null]``                        X; an absent field says null
``anyOf`` of scalars, or ``{}``             ``x-kubernetes-preserve-unknown-fields``
``const: X``                                ``enum: [X]``
``additionalProperties: false``             nothing: unknown fields are pruned or refused anyway
``title``, empty and null defaults          nothing
a string marked int-or-string               both types, as for Kubernetes quantities
docstrings wrapped over lines               one paragraph, with the default in it
==========================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from triptych_operator.json_values import Json, JsonObject

_ANYTHING: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_NULL: Final[JsonObject] = {"type": "null"}
_DROPPED: Final = ("title", "$defs")
_NOTHING: Final[tuple[tuple[str, Json], ...]] = (
    ("additionalProperties", False),
    ("default", None),
    ("default", []),
    ("default", ""),
)
_INEXPRESSIBLE: Final = ("oneOf", "allOf", "prefixItems", "exclusiveMinimum", "exclusiveMaximum")


def structural_schema(model: type[BaseModel]) -> JsonObject:
    """The structural schema of ``model``, with camelCase names, defaults, rules and descriptions.

    Raises:
        ValueError: the model has a type that no structural schema can express.
    """
    whole: JsonObject = model.model_json_schema(by_alias=True)
    return _lower(whole, _object(whole.get("$defs", {})))


def _lower(schema: JsonObject, definitions: Mapping[str, Json]) -> JsonObject:
    schema = _chosen(_resolved(schema, definitions), definitions)
    if not schema.keys() - {"description", "default", "title"}:
        schema = {_ANYTHING: True} | schema
    lowered: JsonObject = {}
    for key, value in schema.items():
        lowered |= _lowered_keyword(key, value, definitions)
    if lowered.pop(_INT_OR_STRING, False):
        del lowered["type"]
        lowered |= {_INT_OR_STRING: True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    if lowered.get("default") and "description" in lowered:
        lowered["description"] = f"{lowered['description']} {_told(lowered['default'])}"
    return _description_first(lowered)


def _told(default: Json) -> str:
    """A default in words, since ``kubectl explain`` shows none."""
    if isinstance(default, dict):
        return f"Default: {', '.join(f'{name} {value}' for name, value in default.items())}."
    return f"Default: {default}."


def _lowered_keyword(key: str, value: Json, definitions: Mapping[str, Json]) -> JsonObject:
    if key in _INEXPRESSIBLE:
        raise ValueError(f"no structural schema can express {key}: {value}")
    if key in _DROPPED or (key, value) in _NOTHING:
        return {}
    match key, value:
        case "properties", dict():
            lowered: Json = {name: _lower(_object(it), definitions) for name, it in value.items()}
        case "additionalProperties", dict() if not _resolved(value, definitions):
            key, lowered = _ANYTHING, True  # and not null dropped, as from a map of what has a type
        case (("items" | "additionalProperties"), dict()):
            lowered = _lower(value, definitions)
        case "additionalProperties", True:
            key, lowered = _ANYTHING, True
        case "const", _:
            key, lowered = "enum", [value]
        case "description", str():
            lowered = " ".join(value.split())
        case _:
            lowered = value
    return {key: lowered}


def _resolved(schema: JsonObject, definitions: Mapping[str, Json]) -> JsonObject:
    """``schema`` with its reference replaced by what it points to; what stands beside it wins."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    target = _object(definitions[reference.removeprefix("#/$defs/")])
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return _resolved(target, definitions) | beside


def _chosen(schema: JsonObject, definitions: Mapping[str, Json]) -> JsonObject:
    """``schema`` without alternatives: the one that is not null, or anything."""
    alternatives = schema.get("anyOf")
    if not isinstance(alternatives, list):
        return schema
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    real = [_object(one) for one in alternatives if one != _NULL]
    if len(real) == 1:
        return _resolved(real[0], definitions) | beside
    nullable: JsonObject = {"nullable": True} if _NULL in alternatives else {}
    return {_ANYTHING: True} | nullable | beside


def _description_first(schema: JsonObject) -> JsonObject:
    return {key: schema[key] for key in sorted(schema, key=lambda key: key != "description")}


def _object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError(f"not a schema: {value}")
    return value
