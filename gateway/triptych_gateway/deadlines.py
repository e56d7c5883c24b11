"""How much time a request has left."""

from __future__ import annotations

import time
from dataclasses import dataclass

from triptych_contract.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock."""

    at: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        """The moment ``seconds`` from now."""
        return Deadline(time.monotonic() + seconds)

    @property
    def passed(self) -> bool:
        """Whether the moment has come."""
        return time.monotonic() >= self.at

    def remaining(self, most: float = float("inf")) -> float:
        """Seconds until then, at most ``most``; always positive.

        Raises:
            DeadlineExceeded: the moment has passed.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("the request took longer than it may")
        return min(left, most)
