"""Position ids of a prompt, for plain rotary embeddings and for those of pictures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triptych_contract.errors import InvalidRequest

from triptych_worker.domain import MediaItem


def text_positions(length: int) -> torch.Tensor:
    """Positions [1, length] of a model that counts tokens."""
    return torch.arange(length).unsqueeze(0)


def mrope_positions(
    length: int, media: Sequence[MediaItem], merge: int
) -> tuple[torch.Tensor, int]:
    """Positions [3, length] in time, height and width, and the delta for tokens after the prompt.

    Text counts on in all three. A picture's rows share one point in time and lie on its grid of
    merged patches; the text after it goes on beyond the grid's longer side. The position of token
    ``i`` after the prompt is ``i`` plus the delta.

    Args:
        length: number of prompt tokens.
        media: pictures in prompt order, each with a grid (t, h, w) in patches and a single span.
        merge: patches along one side of a merged patch.

    Raises:
        InvalidRequest: a grid is not one of this model, or does not fill its span.
    """
    positions = torch.empty(3, length, dtype=torch.long)
    token, position = 0, 0
    for item in media:
        frames, rows, columns = _merged_grid(item, merge)
        span = item.spans[0]
        position = _count_on(positions, token, span.offset, position)
        picture = torch.cartesian_prod(
            torch.arange(frames), torch.arange(rows), torch.arange(columns)
        )
        token = span.offset + span.length
        positions[:, span.offset : token] = picture.reshape(-1, 3).T + position
        position += max(rows, columns)
    position = _count_on(positions, token, length, position)
    return positions, int(positions.max()) + 1 - length if length else 0


def _count_on(positions: torch.Tensor, start: int, stop: int, position: int) -> int:
    """Fills text tokens from ``start`` to ``stop``; the position after them."""
    count = stop - start
    positions[:, start:stop] = torch.arange(position, position + count)
    return position + count


def _merged_grid(item: MediaItem, merge: int) -> tuple[int, int, int]:
    if len(item.grid) != 3 or min(item.grid) <= 0 or item.grid[1] % merge or item.grid[2] % merge:
        raise InvalidRequest(
            f"grid {item.grid} is not (t, h, w) in patches with h and w multiples of {merge};"
            " use the processor of the served model"
        )
    frames, rows, columns = item.grid[0], item.grid[1] // merge, item.grid[2] // merge
    if len(item.spans) != 1 or item.spans[0].length != frames * rows * columns:
        raise InvalidRequest(
            f"grid {item.grid} makes {frames * rows * columns} visual tokens in one span, got"
            f" spans of {[span.length for span in item.spans]}; use the processor of the served"
            " model"
        )
    return frames, rows, columns
