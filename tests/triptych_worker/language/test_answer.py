from tiny_tokenizers import byte_level
from triptych_worker.domain import FinishReason, Logprobs, Sampling, TokenEvent, TokenLogprob
from triptych_worker.language.answer import Answer
from triptych_worker.language.vocabulary import Vocabulary

END = 256
DECODE = Vocabulary(byte_level()).decode


def answer(sampling: Sampling, max_tokens: int = 100) -> Answer:
    return Answer(sampling, max_tokens, frozenset({END}), DECODE)


def said(by: Answer, text: str) -> list[TokenEvent]:
    return [by.push(byte) for byte in text.encode()]


def test_each_token_is_an_event_with_its_text() -> None:
    assert said(answer(Sampling()), "ab") == [TokenEvent(97, "a"), TokenEvent(98, "b")]


def test_the_end_token_stops_and_has_no_text() -> None:
    assert answer(Sampling()).push(END) == TokenEvent(END, "", finish_reason=FinishReason.STOP)


def test_the_end_token_is_one_like_others_if_it_is_to_be_ignored() -> None:
    assert answer(Sampling(ignore_eos=True)).push(END) == TokenEvent(END, "")


def test_the_last_token_allowed_ends_by_length() -> None:
    events = said(answer(Sampling(), max_tokens=2), "ab")
    assert [event.finish_reason for event in events] == [None, FinishReason.LENGTH]


def test_a_stop_string_ends_the_answer_and_is_never_sent() -> None:
    events = said(answer(Sampling(stop=("cd",))), "abcd")
    assert [event.text for event in events] == ["a", "b", "", ""]
    assert events[-1].finish_reason is FinishReason.STOP


def test_text_held_back_is_sent_when_the_length_ends_the_answer() -> None:
    events = said(answer(Sampling(stop=("cd",)), max_tokens=3), "abc")
    assert [event.text for event in events] == ["a", "b", "c"]
    assert events[-1].finish_reason is FinishReason.LENGTH


def test_text_held_back_is_sent_when_the_end_token_comes() -> None:
    by = answer(Sampling(stop=("cd",)))
    said(by, "abc")
    assert by.push(END) == TokenEvent(END, "c", finish_reason=FinishReason.STOP)


def test_an_incomplete_character_is_sent_with_the_last_token() -> None:
    by = answer(Sampling(), max_tokens=2)
    by.push(ord("a"))
    assert by.push(0xC3) == TokenEvent(
        0xC3, "\N{REPLACEMENT CHARACTER}", finish_reason=FinishReason.LENGTH
    )


def test_stop_strings_wait_for_the_least_tokens() -> None:
    events = said(answer(Sampling(stop=("b",), min_tokens=3)), "abab")
    assert [event.text for event in events] == ["a", "b", "a", ""]
    assert events[-1].finish_reason is FinishReason.STOP


def test_an_answer_taken_over_goes_on_where_the_text_was() -> None:
    by = answer(Sampling(stop=("bcd",)), max_tokens=4)
    by.resume(list(b"ab"))
    assert by.token_ids == [97, 98]
    assert by.push(ord("x")) == TokenEvent(ord("x"), "bx")
    assert by.push(ord("y")).finish_reason is FinishReason.LENGTH


def test_a_character_cut_by_the_takeover_comes_whole() -> None:
    first, second = "é".encode()
    by = answer(Sampling())
    by.resume([first])
    assert by.push(second) == TokenEvent(second, "é")


def test_log_probabilities_go_with_their_token() -> None:
    scored = Logprobs(TokenLogprob(97, "a", -0.5, b"a"))
    assert answer(Sampling(logprobs=True)).push(97, scored).logprobs is scored
