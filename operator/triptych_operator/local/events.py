"""What happens to the processes of a local service, as data for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Happening(StrEnum):
    """What happened to one process."""

    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"  # by itself; a restart follows
    DRAINING = "draining"
    STOPPED = "stopped"
    KILLED = "killed"  # it did not end in time


@dataclass(frozen=True, slots=True)
class Event:
    """One happening. ``seconds`` is how long it took, or the delay before a restart."""

    process: str
    happening: Happening
    seconds: float = 0.0
    detail: str = ""


Report = Callable[[Event], None]
