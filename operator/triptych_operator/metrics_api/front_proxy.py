"""Who may call the metrics API: the API server alone, by its front proxy's certificate. Pure.

The API server says which that is in a ConfigMap of kube-system, which every aggregated API reads.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from triptych_contract.errors import Unavailable

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"
_AUTHORITIES: Final = "requestheader-client-ca-file"
_NAMES: Final = "requestheader-allowed-names"


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Certificates that the API server calls with: of whose making, and of which names."""

    authorities: str  # certificates in PEM
    names: frozenset[str]  # allowed common names; empty: any that the authorities signed

    def allows(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client may call, whose certificate the authorities have signed.

        Args:
            certificate: as ``SSLObject.getpeercert`` gives it.
        """
        return bool(certificate) and (
            not self.names or not self.names.isdisjoint(_named(certificate))
        )


def front_proxy_of(config: Mapping[str, Any] | None) -> FrontProxy:
    """The front proxy by the API server's ConfigMap.

    Raises:
        Unavailable: the API server has none: then nobody may call.
    """
    found: Mapping[str, str] = (config or {}).get("data") or {}
    authorities = found.get(_AUTHORITIES, "")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities)
        names = json.loads(found.get(_NAMES) or "[]")
    except (ssl.SSLError, ValueError) as error:
        raise Unavailable(
            f"ConfigMap {NAMESPACE}/{CONFIG_MAP} names no front proxy: start the API server with "
            "--requestheader-client-ca-file, or choose another provider of metrics"
        ) from error
    return FrontProxy(authorities, frozenset(map(str, names)))


def _named(certificate: Mapping[str, Any] | None) -> set[str]:
    """Common names of the subject: lists of lists of pairs."""
    subject = (certificate or {}).get("subject", ())
    return {value for relative in subject for name, value in relative if name == "commonName"}
