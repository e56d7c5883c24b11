"""How much the fault sweeps try: a sample in ``make test``, everything in ``make sweep``."""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("TRIPTYCH_SWEEP", "sample") == "full"
CONVERGE_SECONDS: Final = 30.0  # from the start of an operator to the end of what it has to do
LANES: Final = 3  # trials at a time; each has an operator of its own
MOST_FAILURES: Final = 5  # after which a sweep has seen enough
