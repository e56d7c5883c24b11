"""What an operator asks of the API server, as the proxy between them sees it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_PATH: Final = re.compile(
    r"^/(?:api/[^/]+|apis/[^/]+/[^/]+)"  # core or a group, and its version
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?$"
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``number`` counts the writes of a proxy from 1 on; it is 0 for reads."""

    method: str
    path: str
    query: Mapping[str, str]
    accept: str = ""
    number: int = 0

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method in WRITES

    @property
    def watches(self) -> bool:
        """Whether its answer is a stream of events."""
        return self.query.get("watch") in ("1", "true")

    @property
    def lists(self) -> bool:
        """Whether it reads a whole collection."""
        return self.method == "GET" and not self.watches and self._part("name") == ""

    @property
    def plural(self) -> str:
        """The kind that it is about, such as ``deployments``; empty for other paths."""
        return self._part("plural")

    @property
    def text(self) -> str:
        """As in ``PATCH deployments/shapes-encoder``."""
        parts = (self._part(one) for one in ("plural", "name", "subresource"))
        return f"{self.method} {'/'.join(part for part in parts if part) or self.path}"

    def _part(self, name: str) -> str:
        found = _PATH.match(self.path)
        return (found.group(name) or "") if found else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def refused(status: int, reason: str, *, retry_after: int = 0) -> Answer:
    """The answer by which an API server refuses a call."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": f"{reason}, says the test",
        "code": status,
    }
    headers = {"Content-Type": "application/json"}
    if retry_after:
        headers["Retry-After"] = str(retry_after)
    return Answer(status, headers, json.dumps(body).encode())
