from pathlib import Path

import pytest
from tiny_tokenizers import WORDS, byte_level, sentencepiece
from triptych_contract.errors import InvalidModel
from triptych_worker.language.vocabulary import Vocabulary


def test_byte_level_tokens_are_their_bytes() -> None:
    vocabulary = Vocabulary(byte_level())
    assert [vocabulary.bytes_of(byte) for byte in range(256)] == [
        bytes([byte]) for byte in range(256)
    ]


def test_a_special_token_is_its_name_and_is_skipped_in_text() -> None:
    vocabulary = Vocabulary(byte_level())
    assert vocabulary.bytes_of(256) == b"<end>"
    assert vocabulary.text_of(256) == "<end>"
    assert vocabulary.decode([ord("a"), 256, ord("b")]) == "ab"


def test_sentencepiece_tokens_are_words_with_a_space_or_single_bytes() -> None:
    vocabulary = Vocabulary(sentencepiece())
    assert vocabulary.bytes_of(256) == f" {WORDS[0]}".encode()
    assert vocabulary.bytes_of(0xE2) == b"\xe2"


def test_an_unused_id_has_no_bytes() -> None:
    assert Vocabulary(byte_level()).bytes_of(100_000) == b""


@pytest.mark.parametrize("content", [None, "", "{}", "not JSON"])
def test_a_missing_or_damaged_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InvalidModel, match=r"tokenizer\.json is not a readable tokenizer"):
        Vocabulary.load(tmp_path)
