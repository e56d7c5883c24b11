"""The tokenizer's side that answers need: token ids to text, and to their own bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer
from triptych_contract.errors import InvalidModel

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START: Final = "\u2581"  # how SentencePiece writes a space


class Vocabulary:
    """Decodes token ids; safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @staticmethod
    def load(folder: Path) -> Vocabulary:
        """Reads ``tokenizer.json``.

        Raises:
            InvalidModel: the file is missing or damaged.
        """
        path = folder / "tokenizer.json"
        try:
            return Vocabulary(Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises nothing narrower
            raise InvalidModel(
                f"{path} is not a readable tokenizer ({error}); download the model again"
            ) from error

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``, special tokens skipped."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def text_of(self, token_id: int) -> str:
        """Text of one token by itself, special tokens by their name."""
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def bytes_of(self, token_id: int) -> bytes:
        """The token's own bytes, which may be part of a character; empty for an unused id."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._added:
            return token.encode()
        if self._is_byte_level:
            return b"".join(_unit(character) for character in token)
        byte = _BYTE_TOKEN.fullmatch(token)
        if byte:
            return bytes([int(byte[1], 16)])
        return token.replace(_WORD_START, " ").encode()

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._tokenizer.get_added_tokens_decoder())

    @cached_property
    def _is_byte_level(self) -> bool:
        decoder = json.loads(self._tokenizer.to_str()).get("decoder") or {}
        parts = decoder.get("decoders") or [decoder]
        return any(part.get("type") == "ByteLevel" for part in parts)


def _unit(character: str) -> bytes:
    """The byte that a byte-level tokenizer writes as ``character``."""
    byte = _BYTE_OF.get(character)
    return character.encode() if byte is None else bytes([byte])


def _byte_alphabet() -> dict[str, int]:
    """Printable Latin-1 bytes stand for themselves; the others for 256 and up, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + rank): byte for rank, byte in enumerate(others)
    }


_BYTE_OF: Final = _byte_alphabet()
