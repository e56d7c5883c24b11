"""Who asks, as far as caches must tell: by the API key, or as a trusted proxy says.

This is no authentication. A client that makes up a key becomes a tenant of its own, which shares
nothing with any other; it cannot become another without that one's key.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from triptych_contract.errors import InvalidRequest
from triptych_contract.fingerprints import tenant_salt

_AUTHORIZATION: Final = "authorization"


def salt_of(headers: Headers, allowed: str) -> bytes:
    """The salt of the request's tenant.

    Args:
        headers: of the request.
        allowed: name of the header that names tenants; empty if the service has none.

    Raises:
        InvalidRequest: two headers name tenants, so that one of them could be the client's own.
    """
    named = _only(headers, allowed) if allowed else ""
    if named:
        return tenant_salt(f"header {named}")
    scheme, _, credentials = _only(headers, _AUTHORIZATION).partition(" ")
    if not scheme:
        return tenant_salt("")
    return tenant_salt(f"key {scheme.lower()} {credentials.strip()}")


def _only(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"header {name} comes more than once: send it once")
    return values[0] if values else ""
