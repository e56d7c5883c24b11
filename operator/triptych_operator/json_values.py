"""Types of JSON data, which is what manifests and schemas are."""

from __future__ import annotations

from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
JsonObject: TypeAlias = "dict[str, Json]"
