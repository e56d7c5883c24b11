import json

import pytest
from triptych_operator.cluster.refusals import (
    Refusal,
    not_leading,
    refusal,
    unreachable,
    unreadable,
)


def status(**said: object) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", **said}).encode()


def test_the_servers_own_word_and_sentence_are_kept() -> None:
    body = status(reason="Forbidden", message="exceeded quota: gpus")
    refused = refusal(403, body, "PATCH /api/v1/x")
    assert (refused.status, refused.cause) == (403, "Forbidden")
    assert refused.message == "PATCH /api/v1/x: exceeded quota: gpus"


BODIES = {
    "nothing": (b"", "Status503", "GET /x: HTTP status 503"),
    "a page of HTML": (b" <html>no\n</html> ", "Status503", "GET /x: <html>no\n</html>"),
    "a list": (b"[1]", "Status503", "GET /x: HTTP status 503"),
    "a word": (b'"down"', "Status503", "GET /x: HTTP status 503"),
    "no UTF-8": (b"\xff\xfe", "Status503", "GET /x: \ufffd\ufffd"),
    "half a status": (b'{"reason": "Gone', "Status503", 'GET /x: {"reason": "Gone'),
    "nulls": (status(reason=None, message=None), "Status503", "GET /x: HTTP status 503"),
    "a message alone": (status(message="later"), "Status503", "GET /x: later"),
    "a reason alone": (status(reason="Gone"), "Gone", "GET /x: HTTP status 503"),
}


@pytest.mark.parametrize(("body", "cause", "message"), BODIES.values(), ids=BODIES.keys())
def test_what_no_api_server_says_is_told_as_it_is(body: bytes, cause: str, message: str) -> None:
    refused = refusal(503, body, "GET /x")
    assert (refused.cause, refused.message) == (cause, message)


def test_a_message_without_end_is_cut() -> None:
    assert len(refusal(500, b"x" * 100_000, "GET /x").message) == 1024


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("", 0.0), ("soon", 0.0), ("1.5", 0.0), ("-3", 0.0), ("²", 0.0), ("999999", 60.0)],
)
def test_a_wait_that_the_server_asks_for_is_kept_within_bounds(header: str, seconds: float) -> None:
    assert refusal(429, b"", "GET /x", header).retry_after == seconds


PASSES = {0: True, 400: False, 403: False, 404: False, 409: True, 422: False, 429: True, 500: True}


@pytest.mark.parametrize(("code", "passes"), PASSES.items())
def test_what_may_pass_by_itself_is_told_from_what_stays(code: int, passes: bool) -> None:
    assert Refusal(code, "X", "x").passes is passes


@pytest.mark.parametrize(
    "refused",
    [
        unreachable("GET /x", OSError("no route")),
        unreachable("GET /x", TimeoutError()),
        unreadable("GET /x"),
        not_leading("GET /x"),
    ],
)
def test_no_answer_is_a_refusal_that_passes(refused: Refusal) -> None:
    assert refused.passes
    assert refused.message.startswith("GET /x: ")


def test_an_error_without_a_text_is_named() -> None:
    assert unreachable("GET /x", TimeoutError()).message.endswith("TimeoutError")
