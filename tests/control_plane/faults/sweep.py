"""How much the fault sweeps try: a sample in ``make test``, everything in ``make sweep``."""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("TRIPTYCH_SWEEP", "sample") == "full"
# What a machine may take that is so busy that the seconds allowed are too few: this often what the
# transition took there without faults.
CONVERGE_TIMES: Final = 3.0
LANES: Final = 3  # trials at a time; each has an operator of its own
MOST_FAILURES: Final = 5  # after which a sweep has seen enough
