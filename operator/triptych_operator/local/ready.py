"""The line of JSON that each process prints once on stdout when it serves."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ready:
    """Addresses (host:port) that a process serves at; empty where it has none of a kind."""

    grpc: str = ""
    http: str = ""
    metrics: str = ""

    @staticmethod
    def parse(line: str) -> Ready | None:
        """What ``line`` says, or None when it is some other output."""
        try:
            fields = json.loads(line)
        except ValueError:
            return None
        if not isinstance(fields, dict) or not (fields.get("grpc") or fields.get("http")):
            return None
        return Ready(*(str(fields.get(name) or "") for name in ("grpc", "http", "metrics")))


def port_of(address: str) -> int:
    """The port of host:port; 0 when there is no address."""
    return int(address.rpartition(":")[2] or 0)
