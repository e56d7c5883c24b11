"""Markdown tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its first column to the left and the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def milliseconds(seconds: float) -> str:
    """Whole milliseconds; tenths below ten."""
    value = 1000 * seconds
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def ratio(ours: float, theirs: float) -> str:
    """``ours`` in units of ``theirs``."""
    return f"{ours / theirs:.2f}x" if theirs else "-"
