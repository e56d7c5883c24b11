"""Every call to the API server, as its audit log tells: the watcher that no operator can bend.

The server's own clock times both the call that changes a resource and those by which an operator
answers, and reading the log takes nothing from either.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Call:
    """One answered call: when it came in and when it was answered, in seconds since 1970."""

    received: float
    at: float
    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int

    @property
    def writes(self) -> bool:
        """Whether it changes something, or would."""
        return self.verb in WRITES

    @property
    def succeeded(self) -> bool:
        """Whether the server did it."""
        return self.code < 300


class CallLog:
    """Reads the audit log as it grows."""

    def __init__(self, folder: Path, users: Sequence[str]) -> None:
        self._path = folder / "calls.log"
        self._policy = folder / "calls-policy.json"
        self._users = users
        self._offset = 0

    def flags(self) -> Mapping[str, str | int]:
        """Writes the policy, and gives the API server's flags for it."""
        watches = {"level": "None", "verbs": ["watch"]}  # answered when they end
        ours = {"level": "Metadata", "users": list(self._users)}
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [watches, ours, {"level": "None"}],
        }
        self._policy.write_text(json.dumps(policy))
        return {
            "audit-policy-file": str(self._policy),
            "audit-log-path": str(self._path),
            "audit-log-mode": "blocking",  # an answered call is in the log
        }

    def read(self) -> Iterator[Call]:
        """The calls since it was read last."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    return  # not written to its end yet
                self._offset += len(line)
                yield _call(json.loads(line))


def _call(event: Mapping[str, Any]) -> Call:
    target = event.get("objectRef", {})
    return Call(
        received=_seconds(event["requestReceivedTimestamp"]),
        at=_seconds(event["stageTimestamp"]),
        user=event["user"]["username"],
        verb=event["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
    )


def _seconds(time: str) -> float:
    return datetime.datetime.fromisoformat(time).timestamp()
