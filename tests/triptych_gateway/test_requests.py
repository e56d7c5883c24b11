import json

import pytest
from triptych_gateway.api.errors import InvalidParameter
from triptych_gateway.api.requests import parse_chat_request
from triptych_gateway.conversation import Image, Role, Text

HELLO = [{"role": "user", "content": "hello"}]


def parsed(**fields):
    body = {"model": "m", "messages": HELLO} | fields
    return parse_chat_request(json.dumps(body).encode(), "id")


def problem(**fields) -> InvalidParameter:
    with pytest.raises(InvalidParameter) as caught:
        parsed(**fields)
    return caught.value


def test_defaults_are_those_of_openai():
    request = parsed()
    sampling = request.conversation.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 0)
    assert sampling.seed is None
    assert sampling.max_tokens is None
    assert not request.stream


def test_parts_keep_their_order():
    request = parsed(
        messages=[
            {"role": "system", "content": [{"type": "text", "text": "be short"}]},
            {"role": "user", "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "data:x", "detail": "high"}},
                {"type": "text", "text": "b"},
            ]},
            {"role": "assistant", "content": "c", "refusal": None, "tool_calls": None},
        ]
    )  # fmt: skip
    assert [message.role for message in request.conversation.messages] == list(Role)
    assert request.conversation.messages[1].parts == (Text("a"), Image("data:x"), Text("b"))
    assert list(request.conversation.images()) == [Image("data:x")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2), ("tools", [{"type": "function"}]), ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}), ("presence_penalty", 0.5),
        ("frequency_penalty", -1), ("logit_bias", {"1": 2}), ("modalities", ["audio"]),
        ("n", True), ("store", True), ("repetition_penalty", 1.1),
    ],
)  # fmt: skip
def test_what_openai_knows_and_we_do_not_do_is_named(name, value):
    error = problem(**{name: value})
    assert error.parameter == name
    assert "not supported" in error.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1), ("tools", []), ("tool_choice", "none"), ("response_format", {"type": "text"}),
        ("presence_penalty", 0.0), ("frequency_penalty", None), ("logit_bias", {}),
        ("parallel_tool_calls", True), ("user", "me"), ("temperature", None), ("stop", None),
    ],
)  # fmt: skip
def test_values_that_ask_for_nothing_are_accepted(name, value):
    assert parsed(**{name: value}).model == "m"


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": "hello"}, "messages"),
        ({"model": 5}, "model"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"top_k": -2}, "top_k"),
        ({"seed": 2**64}, "seed"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop.0"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": "yes"}, "stream"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_malformed_fields_are_named(fields, parameter):
    assert problem(**fields).parameter == parameter


def test_an_unknown_field_is_called_unknown():
    assert "temprature is not a known field" in problem(temprature=1).message


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": "data:x"},
        {"type": "image_url"},
        {"type": "input_audio", "input_audio": {}},
        {"type": "text", "text": "x", "extra": 1},
        "text",
    ],
)
def test_malformed_parts_are_refused(part):
    error = problem(messages=[{"role": "user", "content": [part]}])
    assert error.parameter.startswith("messages.0.content.0")


def test_pictures_belong_to_the_user():
    content = [{"type": "image_url", "image_url": {"url": "data:x"}}]
    assert problem(messages=[{"role": "system", "content": content}]).parameter.startswith(
        "messages.0.content"
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b'"x"', b"null", b"\xff\xfe", b'{"model": "\\ud800"}', b"[" * 100000],
)
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(InvalidParameter):
        parse_chat_request(body, "id")
