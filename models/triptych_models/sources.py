"""Where a model's files lie: from a configured source to a folder on this machine.

Worker and gateway resolve the same source, so they do it here: weights on one side and processor
on the other must come from one folder. ``hf://`` may download for minutes: call it off the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from triptych_contract.config import Source
from triptych_contract.errors import InvalidModel, TriptychError, Unavailable

from triptych_models.catalog import UnknownBuiltinError, builtin_folder, encoder_folder

_FORMS: Final = "builtin://NAME, hf://ORG/NAME, file:///DIR or an absolute path"
# Weights, configuration, tokenizer and chat template; not a repository's other formats of them.
_HF_PATTERNS: Final = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def model_folder(source: Source) -> Path:
    """The folder of a whole model.

    Raises:
        InvalidModel: no such form, folder, repository or revision.
        Unavailable: the files are elsewhere and cannot be reached now.
    """
    return _resolved(source, builtin_folder)


def vision_folder(source: Source) -> Path:
    """The folder that a vision part is loaded from, which may hold nothing else.

    Raises:
        InvalidModel, Unavailable: as ``model_folder``.
    """
    return _resolved(source, encoder_folder)


def _resolved(source: Source, builtin: Callable[[str, str], Path]) -> Path:
    scheme, separator, rest = source.source.partition("://")
    if not separator and source.source.startswith("/"):
        return _existing(Path(source.source))
    match scheme:
        case "builtin":
            return _builtin(rest, source.revision, builtin)
        case "file":
            return _local(source.source, rest)
        case "hf":
            return _downloaded(rest, source.revision)
        case _:
            raise InvalidModel(f"{source.source!r} is not a model source: use {_FORMS}")


def _builtin(name: str, revision: str, folder: Callable[[str, str], Path]) -> Path:
    try:
        return folder(name, revision)
    except UnknownBuiltinError as error:
        raise InvalidModel(str(error)) from error


def _local(source: str, path: str) -> Path:
    if not path.startswith("/"):
        raise InvalidModel(f"{source!r} names no folder: write file:// and an absolute path")
    return _existing(Path(path))


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise InvalidModel(f"{folder} is not a folder here: mount or copy the model to it")
    return folder


def _downloaded(name: str, revision: str) -> Path:
    """A snapshot in the hub's own cache; files that are there already are not fetched again."""
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - 0.3 s, and only for hf://
    except ImportError as error:
        raise InvalidModel(
            f"hf://{name} needs the package huggingface_hub: install it, or use file:///DIR"
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_HF_PATTERNS))
    except (OSError, ValueError, LookupError) as error:
        raise _download_error(name, revision, error) from error


def _download_error(name: str, revision: str, error: Exception) -> TriptychError:
    from huggingface_hub.errors import (  # noqa: PLC0415 - as above
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    what = f"hf://{name} at revision {revision!r}"
    if isinstance(error, GatedRepoError):
        return InvalidModel(f"{what} is gated: accept its terms and set HF_TOKEN")
    if isinstance(error, RevisionNotFoundError):
        return InvalidModel(f"{what} does not exist: set model.revision to a commit or branch")
    if isinstance(error, HFValidationError):
        return InvalidModel(f"{what} is no repository name: write hf://ORG/NAME")
    if isinstance(error, RepositoryNotFoundError):
        return InvalidModel(f"{what} does not exist, or HF_TOKEN may not read it")
    return Unavailable(
        f"{what} is not on this machine and cannot be downloaded ({type(error).__name__}): give "
        "the process a network, fill HF_HOME beforehand, or copy it and use file:///DIR (in a "
        "cluster pvc://CLAIM/PATH)"
    )
