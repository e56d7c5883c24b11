"""Answers in OpenAI's shape."""

from __future__ import annotations

import json

import pytest
from triptych_contract.v1.common_pb2 import FINISH_REASON_STOP, TokenEvent
from triptych_gateway.api.responses import Envelope, Usage

EVENTS = (
    TokenEvent(token_id=7, text="a red"),
    TokenEvent(token_id=9, text=""),
    TokenEvent(token_id=8, text=" circle", finish_reason=FINISH_REASON_STOP),
)
USAGE = Usage(prompt_tokens=5, completion_tokens=3)


def chunk_of(line: bytes) -> dict[str, object]:
    return json.loads(line.removeprefix(b"data: "))["choices"][0]


def test_a_whole_answer_joins_the_texts_and_says_why_it_ended() -> None:
    body = json.loads(Envelope("r1", "shapes").whole(EVENTS, USAGE, None))
    assert body["choices"][0]["message"]["content"] == "a red circle"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == 8
    assert "token_ids" not in body["choices"][0]


def test_token_ids_are_told_when_asked_for() -> None:
    envelope = Envelope("r1", "shapes", token_ids=True)
    body = json.loads(envelope.whole(EVENTS, USAGE, None))
    assert body["choices"][0]["token_ids"] == [7, 9, 8]
    lines = [envelope.chunk(event) for event in EVENTS]
    assert [chunk_of(line)["token_ids"] for line in lines if line] == [[7], [9], [8]]


@pytest.mark.parametrize(("event", "sent"), list(zip(EVENTS, (True, False, True), strict=True)))
def test_a_token_without_text_sends_no_chunk(event: TokenEvent, *, sent: bool) -> None:
    assert (Envelope("r1", "shapes").chunk(event) is not None) is sent
