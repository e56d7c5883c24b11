"""Moves UCX on in a process whose memory others read.

Over TCP, and for a connection's first handshake over shared memory, the holder has to take part in
a read. NIXL's own progress thread does that by spinning: half a core of every process at all times,
measured. This one looks often while somebody reads, and seldom else: each look takes a core from
one of the threads of a forward pass, and the others wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

# Seconds between two looks: while somebody may be reading, and otherwise.
_OFTEN: Final = 0.0005
_SELDOM: Final = 0.05
_LIKELY: Final = 1.0  # seconds that a read may take of which no end is told


class Progress:
    """Calls ``look`` from a thread of its own until stopped."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._announced = threading.Event()
        self._lock = threading.Lock()
        self._reads: dict[str, float] = {}  # until when somebody may be reading, by lease
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="nixl-progress", daemon=True)
        self._thread.start()

    def announce(self, lease: str) -> None:
        """A peer was told where to read what ``lease`` covers: look often until it is done."""
        with self._lock:
            self._reads[lease] = time.monotonic() + _LIKELY
        self._announced.set()

    def done(self, leases: Iterable[str]) -> None:
        """What these cover has been read."""
        with self._lock:
            for lease in leases:
                self._reads.pop(lease, None)

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._announced.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            self._announced.clear()
            self._look()
            if self._likely():
                time.sleep(_OFTEN)
            else:
                self._announced.wait(_SELDOM)

    def _likely(self) -> bool:
        now = time.monotonic()
        with self._lock:
            self._reads = {lease: until for lease, until in self._reads.items() if now < until}
            return bool(self._reads)
