"""What a process says it is: the identities behind its encoder fingerprint and model digest."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from pathlib import Path

from triptych_contract.config import Model
from triptych_contract.fingerprints import EncoderIdentity, LanguageIdentity
from triptych_contract.names import ENGINE
from triptych_contract.processor import MEDIA_DECODING, effective_processor


@cache
def engine_version() -> str:
    """Version of the installed distribution."""
    return version("triptych")


def encoder_identity(model: Model, folder: Path, weights_digest: str) -> EncoderIdentity:
    """Identity of the vision part that ``weights_digest`` was read from.

    Args:
        model: what is configured; an ``encoder`` in it replaces source and revision.
        folder: the model's folder, whose processor makes the encoder's input.
        weights_digest: of the loaded vision tensors.

    Raises:
        InvalidModel: the folder has no image processor.
    """
    origin = model.encoder or model
    return EncoderIdentity(
        source=origin.source,
        revision=origin.revision,
        weights=weights_digest,
        processor_revision=model.processor.revision or model.revision,
        processor=effective_processor(folder, model.processor),
        media=MEDIA_DECODING,
        dtype=model.dtype,
        engine=ENGINE,
        engine_version=engine_version(),
    )


def language_identity(model: Model, weights_digest: str, kv_layout: str) -> LanguageIdentity:
    """Identity of the language model that ``weights_digest`` was read from."""
    return LanguageIdentity(
        source=model.source,
        revision=model.revision,
        weights=weights_digest,
        dtype=model.dtype,
        kv_layout=kv_layout,
        engine=ENGINE,
        engine_version=engine_version(),
    )
