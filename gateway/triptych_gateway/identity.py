"""What this gateway expects of its workers: that they read what the gateway's processor makes."""

from __future__ import annotations

from collections.abc import Mapping

from triptych_contract.config import Model, Revisions
from triptych_contract.fingerprints import Canonical, EncoderIdentity
from triptych_contract.processor import MEDIA_DECODING

from triptych_gateway.tiers.fleet import Expected


def expected_workers(
    model: Model, processor: Mapping[str, Canonical], revisions: Revisions
) -> Expected:
    """The encoder that ``model`` asks for, whose weights and engine version are its own to state,
    and the ``revisions`` of all workers."""
    origin = model.encoder or model
    return Expected(
        EncoderIdentity(
            source=origin.source,
            revision=origin.revision,
            weights="",
            processor_revision=model.processor.revision or model.revision,
            processor=processor,
            media=MEDIA_DECODING,
            dtype=model.dtype,
        ),
        revisions,
    )
