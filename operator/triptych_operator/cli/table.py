"""Rows of text in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Each row as a line, the columns two spaces apart."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
