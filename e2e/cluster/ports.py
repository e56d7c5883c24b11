"""Ports for programs that have to be told theirs before they start.

The kernel hands out those of its own range, from 32768 on, to every connection that anybody opens:
one of them that was free when it was chosen may be gone when the program wants it. These are below,
in blocks that one process holds while it lives, and each turns up again only after all others.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK: Final = 200
_FIRSTS: Final = range(22_000, 30_000, BLOCK)  # from 30000 on they are Kubernetes' node ports


def free_port() -> int:
    """A port at which nobody listens, and which no other process is given that asks here.

    Raises:
        OSError: all of this process are taken, or as many processes as can hold any.
    """
    for port in itertools.islice(_ports(os.getpid()), BLOCK):
        if _is_free(port):
            return port
    raise OSError(f"programs listen at all {BLOCK} ports of this process: end some")


@cache
def _ports(process: int) -> Iterator[int]:
    """The ports of the block of ``process``, again and again. Its lock is held until it ends."""
    del process  # a fork is another one, and needs ports of its own
    locks = Path(tempfile.gettempdir()) / f"triptych-ports-{os.getuid()}"
    locks.mkdir(exist_ok=True)
    for first in _FIRSTS:
        lock = os.open(locks / str(first), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return itertools.cycle(range(first, first + BLOCK))
    raise OSError(f"{len(_FIRSTS)} processes hold all ports for programs: end some")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
