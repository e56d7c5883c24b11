from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tokenizers import WORDS, byte_level, sentencepiece
from triptych_worker.language.text import Decode, Detokenizer, StopMatcher
from triptych_worker.language.vocabulary import Vocabulary

BYTES = Vocabulary(byte_level()).decode
PIECES = Vocabulary(sentencepiece()).decode


def pieces(decode: Decode, token_ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(decode)
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]


def test_a_character_comes_when_its_last_byte_does() -> None:
    assert pieces(BYTES, list("aé漢🙂b".encode())) == [
        "a", "", "é", "", "", "漢", "", "", "", "🙂", "b", "",
    ]  # fmt: skip


def test_an_incomplete_character_at_the_end_is_shown_as_such() -> None:
    assert pieces(BYTES, [ord("a"), 0xE2, 0x82]) == ["a", "", "", "\N{REPLACEMENT CHARACTER}"]


def test_words_keep_the_spaces_between_them_and_the_first_has_none() -> None:
    assert pieces(PIECES, [256, 257, 258]) == [WORDS[0], f" {WORDS[1]}", f" {WORDS[2]}", ""]


def test_special_tokens_give_no_text_however_many_there_are() -> None:
    assert "".join(pieces(BYTES, [ord("a"), *[256] * 50, ord("b")])) == "ab"


@given(st.text(max_size=60))
def test_pieces_of_any_text_are_the_text(text: str) -> None:
    assert "".join(pieces(BYTES, list(text.encode()))) == text


@given(st.lists(st.integers(0, 256), max_size=15))
def test_pieces_of_any_bytes_are_what_decoding_them_at_once_gives(token_ids: list[int]) -> None:
    assert "".join(pieces(BYTES, token_ids)) == BYTES(token_ids)


@given(st.lists(st.one_of(st.integers(0x20, 0x7E), st.integers(256, 262)), max_size=40))
def test_pieces_of_sentencepiece_tokens_are_what_decoding_them_at_once_gives(
    token_ids: list[int],
) -> None:
    assert "".join(pieces(PIECES, token_ids)) == PIECES(token_ids)


@given(st.lists(st.integers(0x80, 0xFF), min_size=200, max_size=200))
def test_bytes_that_are_no_text_never_pile_up(token_ids: list[int]) -> None:
    longest = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return BYTES(ids)

    pieces(decode, token_ids)
    assert longest <= 32


def matched(stops: Sequence[str], parts: Sequence[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    passed = []
    for part in parts:
        text, stopped = matcher.push(part)
        passed.append(text)
        if stopped:
            return passed, True
    return [*passed, matcher.flush()], False


@pytest.mark.parametrize(
    ("stops", "parts", "passed", "stopped"),
    [
        (["END"], ["one ", "END", "more"], ["one ", ""], True),
        (["END"], ["one E", "N", "D."], ["one ", "", ""], True),
        (["END"], ["one E", "N", "OUGH"], ["one ", "", "ENOUGH", ""], False),
        (["END"], ["one E", "N"], ["one ", "", "EN"], False),
        (["END"], ["EEND"], ["E"], True),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], True),
        (["later", "\n"], ["a lat", "\n"], ["a ", "lat"], True),
        (["b", "ab"], ["xab"], ["x"], True),
        ([], ["a", "b"], ["a", "b", ""], False),
    ],
    ids=[
        "a whole token",
        "across tokens",
        "a beginning that goes on otherwise",
        "a beginning at the end of the answer",
        "after its own first letter",
        "overlapping itself",
        "two under way at once",
        "the earlier of two",
        "no stop strings",
    ],
)
def test_text_stops_before_a_stop_string(
    stops: list[str], parts: list[str], passed: list[str], *, stopped: bool
) -> None:
    assert matched(stops, parts) == (passed, stopped)


@given(st.text("abc", max_size=40), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_what_passes_is_the_text_up_to_the_first_stop_string(text: str, stops: list[str]) -> None:
    passed, stopped = matched(stops, list(text))
    ends = [index for index in range(len(text) + 1) if any(text[:index].endswith(s) for s in stops)]
    if not ends:
        assert (stopped, "".join(passed)) == (False, text)
        return
    first = text[: ends[0]]
    assert stopped
    assert "".join(passed) == min((first[: first.find(s)] for s in stops if s in first), key=len)
