"""Encoder fingerprints, language-model digests and cache keys.

Every digest is full-length BLAKE3 over a typed, length-prefixed encoding, so no two different
inputs share an encoding: neither by concatenation nor by a value of another type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from blake3 import blake3

KEY_BYTES: Final = 32

Scalar = str | int | float | bool | None
Canonical = Scalar | list["Canonical"] | dict[str, "Canonical"]


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """Everything that can change an embedding of the same media bytes.

    ``weights`` is the digest of the loaded vision weights, so weights replaced under the same name
    and revision are another encoder. ``processor`` and ``media`` are canonical JSON objects: the
    processor's full set of parameters, and the options of media decoding.
    """

    source: str
    revision: str
    weights: str
    processor_revision: str
    processor: Mapping[str, Canonical] = field(default_factory=dict)
    media: Mapping[str, Canonical] = field(default_factory=dict)
    dtype: str = "float32"
    engine: str = "triptych"
    engine_version: str = ""

    def canonical(self) -> str:
        """Canonical JSON: sorted keys, no spaces, no NaN."""
        return canonical_json(asdict(self))

    @staticmethod
    def parse(text: str) -> EncoderIdentity:
        """The identity whose ``canonical`` form is ``text``.

        Raises:
            ValueError: the text is not JSON of this shape.
        """
        try:
            return EncoderIdentity(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"not an encoder identity: {error}") from error


@dataclass(frozen=True, slots=True)
class LanguageIdentity:
    """Everything that must agree between a prefill and the decode that takes over its KV."""

    source: str
    revision: str
    weights: str
    dtype: str
    kv_layout: str
    engine: str = "triptych"
    engine_version: str = ""


def canonical_json(value: Canonical | Mapping[str, Canonical]) -> str:
    """JSON in which equal values have equal text.

    Raises:
        ValueError: NaN or infinity.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
    )


def encoder_fingerprint(identity: EncoderIdentity) -> str:
    """Digest of ``identity``: 64 hexadecimal digits, equal only for an equal identity."""
    return stated_fingerprint(identity.canonical())


def stated_fingerprint(canonical: str) -> str:
    """``encoder_fingerprint`` of the identity with this ``canonical`` form, whose parts need not be
    known here: those of a later version may be more."""
    return _digest("triptych.encoder.v1", canonical.encode()).hex()


def language_digest(identity: LanguageIdentity) -> str:
    """Digest of ``identity``: 64 hexadecimal digits."""
    return _digest("triptych.language.v1", canonical_json(asdict(identity)).encode()).hex()


def media_digest(content: bytes | memoryview) -> bytes:
    """Digest of a media item's own bytes as they came: 32 bytes."""
    return blake3(content).digest()


def tenant_salt(tenant: str) -> bytes:
    """What keeps a tenant's keys apart from everybody else's: 32 bytes."""
    return hashlib.sha256(b"triptych.tenant.v1\0" + tenant.encode()).digest()


NO_TENANT: Final = tenant_salt("")


def embedding_key(media: bytes, fingerprint: str, salt: bytes) -> bytes:
    """Cache key of one media item's embedding: 32 bytes.

    Args:
        media: ``media_digest`` of the item.
        fingerprint: ``encoder_fingerprint`` in hexadecimal.
        salt: ``tenant_salt``.

    Raises:
        ValueError: an argument has not the full length of a digest.
    """
    if len(media) != KEY_BYTES or len(salt) != KEY_BYTES or len(fingerprint) != 2 * KEY_BYTES:
        raise ValueError("a cache key is made of whole digests")
    return _digest("triptych.embedding.v1", media, bytes.fromhex(fingerprint), salt)


def prefix_key(salt: bytes, before: bytes, token_ids: bytes, visual: Sequence[bytes]) -> bytes:
    """Cache key of one block of a prompt together with all that stands before it: 32 bytes.

    Args:
        salt: ``tenant_salt``.
        before: key of the block before it; empty for a prompt's first.
        token_ids: of the block.
        visual: what stands in place of its visual tokens, and where, in order.

    Raises:
        ValueError: the salt has not the full length of a digest, nor has ``before``.
    """
    if len(salt) != KEY_BYTES or len(before) not in (0, KEY_BYTES):
        raise ValueError("a cache key is made of whole digests")
    return _digest("triptych.prefix.v1", salt, before, token_ids, *visual)


def _digest(domain: str, *parts: bytes) -> bytes:
    hasher = blake3()
    for part in (domain.encode(), *parts):
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return hasher.digest()
