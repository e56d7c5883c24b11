"""Benchmarks: this repository's services beside the field's, in one run on one machine."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "e2e"))  # no part of the distribution
