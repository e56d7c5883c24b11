"""Where the built-in models lie on disk.

A caller asks by name and revision and gets a folder; nothing here reads the weights, so the
operator and the command line can check a `builtin://` source without torch.
"""

from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent


class UnknownBuiltinError(LookupError):
    """No built-in model, or no such revision of it; the message names what exists."""


@dataclass(frozen=True)
class _Builtin:
    models: dict[str, str]
    encoders: dict[str, str]


_CATALOG = {
    "shapes": _Builtin(
        models={"1": "shapes/1"},
        encoders={"1": "shapes/1", "2": "shapes/encoder-2"},
    ),
}


def builtin_names() -> tuple[str, ...]:
    """The names that may follow `builtin://`."""
    return tuple(_CATALOG)


def builtin_revisions(name: str) -> tuple[str, ...]:
    """The revisions of a whole model, oldest first."""
    return tuple(_builtin(name).models)


def encoder_revisions(name: str) -> tuple[str, ...]:
    """The revisions of a model's vision encoder, oldest first."""
    return tuple(_builtin(name).encoders)


def builtin_folder(name: str, revision: str) -> Path:
    """The complete Hugging Face folder of a model's revision."""
    return _folder(name, revision, _builtin(name).models, "revision")


def encoder_folder(name: str, revision: str) -> Path:
    """The folder that holds an encoder's revision; it may be that of a whole model."""
    return _folder(name, revision, _builtin(name).encoders, "encoder revision")


def _builtin(name: str) -> _Builtin:
    if name not in _CATALOG:
        raise UnknownBuiltinError(
            f"no built-in model is named {name!r}; there is: {', '.join(_CATALOG)}"
        )
    return _CATALOG[name]


def _folder(name: str, revision: str, folders: dict[str, str], what: str) -> Path:
    if revision not in folders:
        raise UnknownBuiltinError(
            f"built-in model {name!r} has no {what} {revision!r}; there is: {', '.join(folders)}"
        )
    return _ROOT / folders[revision]
