"""The parameters that turn a picture into an encoder's input, as the fingerprint sees them.

The gateway runs the processor and the encoder states its fingerprint, so both must name the same
parameters: they call ``effective_processor`` on the same folder with the same overrides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from triptych_contract.config import Processor
from triptych_contract.errors import InvalidModel
from triptych_contract.fingerprints import Canonical

# What the gateway does to a picture before the processor sees it. A change to media decoding that
# changes pixels changes a value here, and with it every fingerprint.
MEDIA_DECODING: Final[Mapping[str, Canonical]] = {"mode": "RGB", "orientation": "exif"}

_PREPROCESSOR: Final = "preprocessor_config.json"
_PROCESSOR: Final = "processor_config.json"
_EDGES: Final = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}


def effective_processor(folder: Path, overrides: Processor) -> dict[str, Canonical]:
    """Every parameter of the folder's image processor, with the configured overrides applied.

    The answer is a whole image-processor dictionary: constructing the processor from it, rather
    than from the folder and the overrides apart, is what keeps pixels and fingerprint together.

    Raises:
        InvalidModel: the folder holds no image processor, or one that is not a JSON object.
    """
    return _overridden(_image_processor(folder), overrides)


def _image_processor(folder: Path) -> dict[str, Canonical]:
    """A nested ``image_processor`` wins over the older file, as in transformers."""
    nested = _json_object(folder / _PROCESSOR).get("image_processor")
    if isinstance(nested, dict):
        return nested
    parameters = _json_object(folder / _PREPROCESSOR)
    if not parameters:
        raise InvalidModel(
            f"{folder} has no image processor: add {_PREPROCESSOR}, or {_PROCESSOR} with an "
            "image_processor section"
        )
    return parameters


def _json_object(path: Path) -> dict[str, Canonical]:
    try:
        value = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidModel(f"{path} cannot be read as JSON; download the model again") from error
    if not isinstance(value, dict):
        raise InvalidModel(f"{path} is not a JSON object; download the model again")
    return value


def _refuse_constant(name: str) -> Canonical:
    raise ValueError(f"{name} has no canonical form")


def _overridden(parameters: Mapping[str, Canonical], overrides: Processor) -> dict[str, Canonical]:
    merged = dict(parameters)
    for name, value in (
        ("min_pixels", overrides.min_pixels),
        ("max_pixels", overrides.max_pixels),
    ):
        if value is not None:
            merged = _with_pixels(merged, name, value)
    return merged | overrides.parameters


def _with_pixels(
    parameters: Mapping[str, Canonical], name: str, value: int
) -> dict[str, Canonical]:
    """Where ``size`` states both edges they are areas in pixels, and the override goes there."""
    size = parameters.get("size")
    if isinstance(size, dict) and set(_EDGES.values()) <= size.keys():
        rest = {key: kept for key, kept in parameters.items() if key != name}
        return rest | {"size": size | {_EDGES[name]: value}}
    return dict(parameters) | {name: value}
