"""What the gateway tells of one request's stages when it is asked with ``x-triptych-times``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StageReport:
    """Seconds by ``names.Stage`` and counts by ``names.Count``, in the order of the path."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def parse(body: object) -> StageReport:
        """The report in a response's ``triptych`` field; empty for a server that sends none."""
        if not isinstance(body, Mapping):
            return StageReport()
        seconds, counts = body.get("times"), body.get("counts")
        return StageReport(
            {str(key): float(value) for key, value in seconds.items()}
            if isinstance(seconds, Mapping)
            else {},
            {str(key): int(value) for key, value in counts.items()}
            if isinstance(counts, Mapping)
            else {},
        )
