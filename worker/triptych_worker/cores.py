"""The one thread of a process that computes, and how many threads share in its operations.

All stages of a process give their forward passes to it, one at a time: each uses all cores, and two
at once would take longer than one after the other. Taking turns also lets answers grow in step: a
decode step reads every weight whether for one answer or for eight, so the steps that do not run
between two pictures are made up for by larger ones.

It is one thread because of OpenMP. Threads that share in the operations of one thread wait for its
next by spinning, but libgomp lets them spin only while those of the whole process are no more than
the cores: a second thread that has ever shared out a copy has every later operation of both wake
its helpers from sleep, which took a quarter of a decode step. So all other threads work alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

T = TypeVar("T")


def share(threads: int) -> None:
    """Has so many threads share in each operation that the calling thread begins from now on."""
    torch.get_num_threads()  # takes the process's default now, which would replace ours later
    torch.set_num_threads(threads)


def alone() -> None:
    """Has the calling thread compute by itself."""
    share(1)


class Cores:
    """Runs what it is given in the order of asking, from any thread.

    Args:
        threads: that share in an operation; 0 leaves torch's choice.
    """

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or torch.get_num_threads()
        self._sharing = self.threads  # of the thread
        self._thread = ThreadPoolExecutor(1, "compute", partial(share, self.threads))
        self._lock = threading.Lock()
        self._unfinished = 0

    def submit(self, work: Callable[[bool], T], threads: int = 0) -> Future[T]:
        """Runs ``work`` in its turn, telling it whether it had to wait.

        Args:
            work: what to run.
            threads: that share in it; 0 is all.
        """
        with self._lock:
            waits = self._unfinished > 0
            self._unfinished += 1
        return self._thread.submit(self._run, partial(work, waits), threads or self.threads)

    def close(self) -> None:
        """Ends the thread after what runs; what has not begun is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, work: Callable[[], T], threads: int) -> T:
        if threads != self._sharing:
            share(threads)
            self._sharing = threads
        try:
            return work()
        finally:  # before whoever waits for the result can ask again
            with self._lock:
                self._unfinished -= 1
