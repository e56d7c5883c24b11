"""The cores of a process that encodes and generates: one of the two computes at a time.

Both use all cores, and two forward passes at a time take longer than one after the other. Taking
turns also lets answers grow in step: a decode step reads every weight whether for one answer or for
eight, so the steps that do not run between two pictures are made up for by larger ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cores:
    """Turns in the order of asking, from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.asked = 0  # turns asked for so far
        self._ended = 0

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Holds the cores inside the ``with``; tells whether it had to wait for them."""
        with self._changed:
            place = self.asked
            self.asked += 1
            waited = place != self._ended
            self._changed.wait_for(lambda: place == self._ended)
        try:
            yield waited
        finally:
            with self._changed:
                self._ended += 1
                self._changed.notify_all()
