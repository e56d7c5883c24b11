"""Where the metrics API is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Front:
    """The Service that the API server calls, and where this replica listens for it."""

    namespace: str
    name: str
    address: str  # an IP address, not of loopback
    port: int

    @property
    def host(self) -> str:
        """The name that the API server expects in the certificate."""
        return f"{self.name}.{self.namespace}.svc"
