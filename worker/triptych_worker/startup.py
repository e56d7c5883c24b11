"""What the C libraries of a worker read from its environment once, before any of our code runs.

OpenMP: threads that wait for the next operation of a forward pass spin, by default for milliseconds
and tens of thousands of times a second. Where processes share cores, each then burns what another
needs: two idle cores' worth of spinning made a decode step use ten times its processor time.
glibc: tensors of a forward pass are megabytes that are mapped, faulted in page by page and unmapped
again and again; huge pages spare 7 % of an encode and of a prefill.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

# Turns of the waiting loop, tens of nanoseconds each: about the time between two operations.
_DEFAULTS: Final = {"GOMP_SPINCOUNT": "1000", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def tuned(environment: Mapping[str, str]) -> dict[str, str] | None:
    """The environment with our settings where it has none; None if nothing is to add."""
    whole = _DEFAULTS | dict(environment)
    return None if whole == environment else whole


def restart_tuned() -> None:
    """Starts this program anew in the same process if its environment is not tuned yet."""
    environment = tuned(os.environ)
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - this very program
