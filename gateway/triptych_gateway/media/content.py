"""A picture's own bytes, under the digest that everything else knows them by."""

from __future__ import annotations

from dataclasses import dataclass

from triptych_contract.fingerprints import media_digest


@dataclass(frozen=True, slots=True)
class Content:
    """A picture as it came, and the digest of its bytes."""

    encoded: bytes
    digest: bytes

    @staticmethod
    def of(encoded: bytes) -> Content:
        """Takes ``encoded`` in; hashes it."""
        return Content(encoded, media_digest(encoded))
