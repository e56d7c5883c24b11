"""YAML and JSON manifests in, a MultimodalService or errors that name the field out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from triptych_contract.errors import InvalidRequest

from triptych_operator.api.service import MultimodalService
from triptych_operator.api.stored import as_stored

MANIFEST_LIMIT: Final = 3 * 1024 * 1024  # bytes; the API server takes no larger object


class _Loader(yaml.SafeLoader):
    """YAML without duplicate keys, whose later one would win unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the base class's signature
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # refused by the base class
            if key in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is given twice: remove one",
                    problem_mark=key_node.start_mark,
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


def read_service(path: Path) -> MultimodalService:
    """The one resource in the file ``path``.

    Raises:
        InvalidRequest: the file cannot be read, or is not one valid resource.
    """
    try:
        if path.stat().st_size > MANIFEST_LIMIT:
            raise InvalidRequest(f"{path}: larger than a manifest can be (3 MiB)")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not a text file; give a YAML manifest") from error
    return parse_service(text, str(path))


def parse_service(text: str, origin: str) -> MultimodalService:
    """The one resource in ``text``; ``origin`` names it in errors.

    Raises:
        InvalidRequest: not YAML, not exactly one document, or not a valid resource.
    """
    try:
        documents = [given for given in yaml.load_all(text, _Loader) if given is not None]
    except yaml.YAMLError as error:
        raise InvalidRequest(f"{origin}: not YAML: {error}") from error
    if len(documents) != 1:
        raise InvalidRequest(
            f"{origin}: holds {len(documents)} documents; give a file with one MultimodalService"
        )
    return validate_service(documents[0], origin)


def validate_service(body: object, origin: str) -> MultimodalService:
    """The resource that ``body`` (JSON data) describes; ``origin`` names it in errors.

    Raises:
        InvalidRequest: with one line for every field that is wrong.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequest(
            f"{origin}: not an object; begin with apiVersion, kind, metadata, spec"
        )
    try:
        # Strict JSON rules, so that what passes here passes in the API server too.
        return MultimodalService.model_validate_json(_as_json(body, origin))
    except ValidationError as error:
        problems = [_explain(details) for details in error.errors(include_url=False)]
        raise InvalidRequest("\n".join(f"{origin}: {problem}" for problem in problems)) from error


def check_for_cluster(service: MultimodalService, origin: str) -> None:
    """Checks what only a cluster refuses.

    Raises:
        InvalidRequest: with the message of the first rule that does not hold.
    """
    model = service.spec.model
    for where, part in (("spec.model", model), ("spec.model.encoder", model.encoder)):
        for rule in part.cluster_rules if part else ():
            if not rule.holds(part):
                raise InvalidRequest(f"{origin}: {where}: {rule.message}")


def _as_json(body: Mapping[str, Any], origin: str) -> str:
    """JSON text of what would be stored. A date, which only YAML has, becomes its text."""
    try:
        return json.dumps(as_stored(dict(body), MultimodalService), default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:  # odd keys, cycles, sheer depth
        raise InvalidRequest(f"{origin}: not expressible as JSON: {error}") from error


def _explain(details: ErrorDetails) -> str:
    where = ".".join(str(part) for part in details["loc"]) or "manifest"
    kind = details["type"]
    if kind == "extra_forbidden":
        return f"{where}: unknown field; {_known_beside(details['loc'])}"
    if kind == "missing":
        return f"{where}: required; add it"
    if kind == "string_type":
        return f"{where}: must be text, not {details['input']!r}; put it in quotes"
    if kind == "int_type":
        return f"{where}: must be a whole number, not {details['input']!r}; no quotes"
    return f"{where}: {details['msg']}"


def _known_beside(location: tuple[int | str, ...]) -> str:
    """The fields that could have been meant where an unknown one stands."""
    model: type[BaseModel] | None = MultimodalService
    for part in location[:-1]:
        if isinstance(part, str) and model is not None:
            model = _model_of_field(model, part)
    if model is None:
        return "remove it"
    names = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(str(location[-1]), names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{hint}known here: {', '.join(names)}"


def _model_of_field(model: type[BaseModel], alias: str) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if (field.alias or name) == alias:
            candidates = (field.annotation, *get_args(field.annotation))
            return next((kind for kind in candidates if _is_model(kind)), None)
    return None


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
