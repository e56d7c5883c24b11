"""The writes that an API server has seen: who changed what, counted from its audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITING_VERBS = ("create", "update", "patch", "delete", "deletecollection")

# Every write once, when it is answered; reads would be most of the log and none of its worth.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": list(WRITING_VERBS)}, {"level": "None"}],
}


class Write(NamedTuple):
    """What a write was: as in ``patch deployments/status``; ``subresource`` is mostly empty."""

    verb: str
    resource: str
    subresource: str


@dataclass(frozen=True)
class Entry:
    """One write of the log, refused ones (``code`` from 400 on) included."""

    user: str
    write: Write
    namespace: str
    name: str
    code: int


class AuditLog:
    """Reads the log that an API server writes in blocking mode: an answered write is in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.log"
        self._policy = folder / "audit-policy.json"

    def flags(self) -> dict[str, str | int]:
        """Writes the policy, and gives the flags by which the API server follows it."""
        self._policy.write_text(json.dumps(POLICY))
        return {
            "audit-policy-file": str(self._policy),
            "audit-log-path": str(self.path),
            "audit-log-mode": "blocking",
            "audit-log-maxsize": 100_000,  # MB: a log that is rotated has other positions
        }

    def position(self) -> int:
        """The end of the log now, from which to count on."""
        return self.path.stat().st_size if self.path.exists() else 0

    def entries(self, since: int = 0, *, user: str = "", namespace: str = "") -> Iterator[Entry]:
        """Writes after ``since``, of one user and in one namespace where given, in order."""
        with self.path.open("rb") as log:
            log.seek(max(0, since - 1))
            if since and log.read(1) != b"\n":
                log.readline()  # the rest of a line that was being written then
            for line in log:
                if not line.endswith(b"\n"):
                    return  # being written now, so not yet answered
                entry = _entry(json.loads(line))
                if user in ("", entry.user) and namespace in ("", entry.namespace):
                    yield entry

    def writes(self, since: int = 0, *, user: str = "", namespace: str = "") -> Counter[Write]:
        """How often each write was tried after ``since``."""
        return Counter(one.write for one in self.entries(since, user=user, namespace=namespace))


def _entry(event: Mapping[str, Any]) -> Entry:
    target = event.get("objectRef", {})
    write = Write(event["verb"], target.get("resource", ""), target.get("subresource", ""))
    return Entry(
        user=event["user"]["username"],
        write=write,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
    )
