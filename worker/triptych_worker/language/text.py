"""Token ids to text as they come: whole characters only, and never a part of a stop string.

Pure, given a function that decodes token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

Decode = Callable[[Sequence[int]], str]

_INCOMPLETE: Final = "\N{REPLACEMENT CHARACTER}"
# No character needs more tokens than this; bytes that still make none are not text.
_MOST_PENDING: Final = 16


class Detokenizer:
    """Decodes incrementally: the pieces together are what decoding all tokens at once gives.

    A token is decoded together with the tokens of the piece before, since a tokenizer may treat the
    first token it sees differently (Llama's drops a leading space).
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._before: list[int] = []  # tokens of the last piece
        self._pending: list[int] = []  # tokens that have given no text yet

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` completes; empty while a character is incomplete."""
        self._pending.append(token_id)
        piece = self._piece()
        if len(self._pending) < _MOST_PENDING and (not piece or piece.endswith(_INCOMPLETE)):
            return ""
        return self._pass_on(piece)

    def flush(self) -> str:
        """What is left at the end, complete or not."""
        return self._pass_on(self._piece())

    def _piece(self) -> str:
        before = self._decode(self._before) if self._before else ""
        return self._decode(self._before + self._pending)[len(before) :]

    def _pass_on(self, piece: str) -> str:
        if piece:
            self._before = self._pending
        self._pending = []
        return piece


class StopMatcher:
    """Passes text on until a stop string, holding back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Text that is certain by now, and whether a stop string ended the answer before it."""
        if not self._stops:
            return text, False
        self._held += text
        found = [at for at in map(self._held.find, self._stops) if at >= 0]
        if found:
            return self._held[: min(found)], True
        keep = max(self._overlap(stop) for stop in self._stops)
        cut = len(self._held) - keep
        certain, self._held = self._held[:cut], self._held[cut:]
        return certain, False

    def flush(self) -> str:
        """What was held back, when the answer ends without a stop string."""
        held, self._held = self._held, ""
        return held

    def _overlap(self, stop: str) -> int:
        """Characters at the end of the held text that begin ``stop``."""
        longest = min(len(stop) - 1, len(self._held))
        for length in range(longest, 0, -1):
            if self._held.endswith(stop[:length]):
                return length
        return 0
