"""Moves UCX on in a process whose memory others read.

Over TCP, and for a connection's first handshake over shared memory, the holder has to take part in
a read. NIXL's own progress thread does that by spinning: half a core of every process at all times,
measured. This one looks often while reads are likely, and seldom else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

# Seconds between two looks: while somebody may be reading, and otherwise.
_OFTEN: Final = 0.0005
_SELDOM: Final = 0.05
_LIKELY: Final = 1.0  # seconds after a read was announced


class Progress:
    """Calls ``look`` from a thread of its own until stopped."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._announced = threading.Event()
        self._likely_until = 0.0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="nixl-progress", daemon=True)
        self._thread.start()

    def announce(self) -> None:
        """A peer was told where to read: look often for a while."""
        self._likely_until = time.monotonic() + _LIKELY
        self._announced.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._announced.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            self._announced.clear()
            self._look()
            if time.monotonic() < self._likely_until:
                time.sleep(_OFTEN)
            else:
                self._announced.wait(_SELDOM)
