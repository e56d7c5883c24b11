"""What the C libraries of a worker read from its environment once, before any of our code runs.

OpenMP: threads that wait for the next operation of a forward pass spin, by default for milliseconds
and tens of thousands of times a second. Where processes share cores, each then burns what another
needs: two idle cores' worth of spinning made a decode step use ten times its processor time.
glibc: tensors of a forward pass are megabytes that are mapped, faulted in page by page and unmapped
again and again; huge pages spare 7 % of an encode and of a prefill.
CPU limits: torch takes a thread for every core of the machine, also where a limit grants two of 64;
the 64 then use up the time of the two at once, and all wait for the rest of each period.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from triptych_contract.names import Tier

_DEFAULTS: Final = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# Turns of the waiting loop, tens of nanoseconds each. Of pictures and prompts operations are long,
# and to wake for one is little. Those of a decode step are tens of microseconds long and as far
# apart, so whoever shares in them waits awake; where cores are short there is nobody to wait
# (free_cores.py).
_SPINS: Final = {Tier.ENCODER: 1000, Tier.PREFILL: 1000, Tier.DECODE: 3000, Tier.FUSED: 3000}

# Microseconds of processor time in each period, and the period: of control groups v2, and of v1.
_QUOTA: Final = (
    ("cpu.max",),
    ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
)


def granted_cores(groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """How many cores the limit of this container comes to, begun ones whole; None: no limit."""
    for names in _QUOTA:
        try:
            quota, period = " ".join((groups / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        return math.ceil(int(quota) / int(period)) if quota not in {"max", "-1"} else None
    return None


def tuned(environment: Mapping[str, str], tier: Tier, cores: int | None) -> dict[str, str] | None:
    """The environment with our settings where it has none; None if nothing is to add."""
    ours = {**_DEFAULTS, "GOMP_SPINCOUNT": str(_SPINS[tier])}
    threads = {"OMP_NUM_THREADS": str(cores)} if cores else {}
    whole = ours | threads | dict(environment)
    return None if whole == environment else whole


def restart_tuned(tier: Tier) -> None:
    """Starts this program anew in the same process if its environment is not tuned yet."""
    environment = tuned(os.environ, tier, granted_cores())
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - this very program
