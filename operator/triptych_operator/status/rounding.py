"""Numbers as the status shows them. Pure."""

from __future__ import annotations

from typing import Final

MATERIAL: Final = 0.1  # of a number: to change it by less is not worth a write


def coarse(value: float) -> float:
    """Three digits of a number."""
    return float(f"{value:.3g}")


def rounded(value: float) -> str:
    """Three digits: ``0.482``, ``12.5``, ``20500``."""
    return f"{coarse(value):f}".rstrip("0").rstrip(".") or "0"
