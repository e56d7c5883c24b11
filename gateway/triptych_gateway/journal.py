"""What one request took: seconds by stage, counts, and the pods that were asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from triptych_contract.names import Count, Stage, Tier
from triptych_contract.v1.common_pb2 import StageTimes

# The gateway counts these itself; what several tiers say of them would add up to too much.
_KNOWN_HERE: Final = frozenset({Count.PROMPT_TOKENS, Count.VISUAL_TOKENS, Count.OUTPUT_TOKENS})


@dataclass(slots=True)
class Journal:
    """Collects while a request runs. Not thread-safe: written on the event loop only."""

    seconds: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    pods: dict[str, None] = field(default_factory=dict)  # "TIER=ADDRESS", each once, in order

    def add(self, stage: str, seconds: float) -> None:
        """``seconds`` more of ``stage``."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def count(self, name: str, amount: int = 1) -> None:
        """``amount`` more of ``name``."""
        self.counts[name] += amount

    def asked(self, tier: Tier, address: str) -> None:
        """The pod at ``address`` was asked to do a part of the work."""
        self.pods[f"{tier}={address}"] = None

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Adds the time spent inside the ``with``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start)

    def report(self, times: StageTimes) -> None:
        """What another tier measured."""
        for stage, seconds in times.seconds.items():
            self.add(stage, seconds)
        for name, amount in times.counts.items():
            if name not in _KNOWN_HERE:
                self.count(name, amount)

    def join(self, side_by_side: Iterable[Journal]) -> None:
        """Takes over journals of work that ran at the same time: of each stage the longest."""
        journals = list(side_by_side)
        for stage in {stage for journal in journals for stage in journal.seconds}:
            self.add(stage, max(journal.seconds.get(stage, 0.0) for journal in journals))
        for journal in journals:
            self.counts.update(journal.counts)
            self.pods |= journal.pods

    def as_json(self) -> dict[str, object]:
        """Rounded to microseconds, stages in the order of a request."""
        known = {
            str(stage): round(self.seconds[stage], 6) for stage in Stage if stage in self.seconds
        }
        counts = {str(name): self.counts[name] for name in Count if name in self.counts}
        return {"times": known, "counts": counts}
