"""Names for the beginnings of prompts: two are equal only if all that stands before is. Pure.

A prompt is cut into blocks. The key of a block covers its tokens, what stands in place of its
visual tokens, and the key of the block before it, so it names the whole beginning of the prompt.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from triptych_contract.fingerprints import prefix_key

from triptych_worker.domain import MediaItem

# Small enough to lose little behind a picture, large enough that a copy is worth a call.
BLOCK_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Block:
    """``BLOCK_TOKENS`` tokens and all before them. ``fingerprint`` is that of the encoder whose
    embeddings they depend on, empty where there is none."""

    key: bytes
    fingerprint: str


def chain(
    token_ids: Sequence[int],
    media: Sequence[MediaItem],
    salt: bytes,
    known: Sequence[Block] = (),
) -> tuple[Block, ...]:
    """All whole blocks of a sequence, from its first token on.

    Args:
        token_ids: of the sequence, placeholders expanded.
        media: in place of placeholders, in the order of the sequence.
        salt: of the tenant; blocks of two salts are never equal.
        known: the first blocks, if they were made before.
    """
    blocks = list(known)
    overlaps = _overlaps(media)
    for number in range(len(blocks), len(token_ids) // BLOCK_TOKENS):
        before = blocks[-1] if blocks else Block(b"", "")
        first = number * BLOCK_TOKENS
        tokens = struct.pack(f"<{BLOCK_TOKENS}I", *token_ids[first : first + BLOCK_TOKENS])
        visual = overlaps.get(number, ())
        key = prefix_key(salt, before.key, tokens, [part for each in visual for part in each.parts])
        fingerprint = visual[-1].fingerprint if visual else before.fingerprint
        blocks.append(Block(key, fingerprint))
    return tuple(blocks)


@dataclass(frozen=True, slots=True)
class _Overlap:
    """Embedding rows in one block, as its key covers them."""

    parts: tuple[bytes, ...]
    fingerprint: str


def _overlaps(media: Iterable[MediaItem]) -> dict[int, list[_Overlap]]:
    """What stands in each block, by the block's number."""
    found: dict[int, list[_Overlap]] = {}
    for item in media:
        handle = item.handle
        # The grid says where in the picture the rows lie, on which their positions depend.
        grid = struct.pack(f"<{len(item.grid)}Q", *item.grid)
        what = (handle.key, bytes.fromhex(handle.fingerprint), grid)
        for number, place in _places(item):
            found.setdefault(number, []).append(_Overlap((place, *what), handle.fingerprint))
    return found


def _places(item: MediaItem) -> Iterator[tuple[int, bytes]]:
    """Per block that the picture has rows in: first token within it, first row, number of rows."""
    row = 0
    for span in item.spans:
        token, end = span.offset, span.offset + span.length
        while token < end:
            number, inside = divmod(token, BLOCK_TOKENS)
            count = min(end - token, BLOCK_TOKENS - inside)
            yield number, struct.pack("<3Q", inside, row, count)
            token += count
            row += count
