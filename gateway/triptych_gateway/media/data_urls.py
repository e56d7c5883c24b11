"""The bytes inside ``data:`` URLs."""

from __future__ import annotations

import binascii
from typing import Final

from triptych_contract.errors import InvalidRequest, TooLarge

SCHEME: Final = "data:"
_MAX_HEADER: Final = 128


def is_data_url(url: str) -> bool:
    """Whether ``url`` carries its content itself."""
    return url[: len(SCHEME)].lower() == SCHEME


def decode_data_url(url: str, max_bytes: int) -> bytes:
    """The content of ``url``. The media type that it claims is ignored: the bytes tell.

    Raises:
        InvalidRequest: not base64, or damaged.
        TooLarge: more than ``max_bytes``.
    """
    comma = url.find(",", 0, _MAX_HEADER)
    if comma < 0 or not url[:comma].lower().endswith(";base64"):
        raise InvalidRequest("an image's data URL must look like data:image/png;base64,CONTENT")
    encoded = memoryview(url.encode("ascii", errors="replace"))[comma + 1 :]
    if len(encoded) // 4 * 3 > max_bytes + 2:
        raise TooLarge(f"an image is larger than {max_bytes} bytes")
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except binascii.Error as error:
        raise InvalidRequest("an image's data URL is not valid base64") from error
