"""Asks a server of the OpenAI API through the official client, and prints the answer."""

from __future__ import annotations

import base64
import mimetypes
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import openai
from openai.types.chat import (
    ChatCompletionContentPartParam,
    ChatCompletionUserMessageParam,
)
from triptych_contract.errors import InvalidRequest, TerminalError, Unavailable

from triptych_operator.cli.times import StageReport

TIMES_HEADER: Final = {"x-triptych-times": "1"}
TIMEOUT: Final = 300.0  # seconds for the whole answer


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask. Without a ``model`` the first that the server lists."""

    text: str
    images: tuple[Path, ...] = ()
    model: str | None = None
    max_tokens: int = 256


def ask(question: Question, url: str, *, times: bool = False) -> None:
    """Prints the answer as it comes; with ``times`` whole, and the time of each stage after it.

    Raises:
        InvalidRequest: a picture cannot be read.
        Unavailable: no server answers at ``url``.
        TerminalError: the server refuses; the message is its own.
    """
    message = user_message(question.text, question.images)
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=TIMEOUT)
    try:
        model = question.model or _first_model(client)
        show = _print_with_times if times else _print_as_it_comes
        show(client, model, message, question.max_tokens)
    except openai.APIConnectionError as error:
        raise Unavailable(
            f"no answer from {url}: is a service running there? Start one with "
            "`triptych up -f examples/shapes.yaml`, or name another with --url"
        ) from error
    except openai.APIStatusError as error:
        raise TerminalError(f"{url} answered {error.status_code}: {_told(error)}") from error


def user_message(question: str, images: Sequence[Path]) -> ChatCompletionUserMessageParam:
    """The question with its pictures as data URLs.

    Raises:
        InvalidRequest: a picture cannot be read.
    """
    parts: list[ChatCompletionContentPartParam] = [
        {"type": "image_url", "image_url": {"url": data_url(path)}} for path in images
    ]
    return {"role": "user", "content": [*parts, {"type": "text", "text": question}]}


def data_url(path: Path) -> str:
    """The file as a data URL; the server looks at the bytes, the type is only what the name says.

    Raises:
        InvalidRequest: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read the picture {path}: {error.strerror}") from error
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _first_model(client: openai.OpenAI) -> str:
    models = client.models.list().data
    if not models:
        raise Unavailable("the service lists no model; name one with --model")
    return models[0].id


def _print_as_it_comes(
    client: openai.OpenAI, model: str, message: ChatCompletionUserMessageParam, max_tokens: int
) -> None:
    stream = client.chat.completions.create(
        model=model, messages=[message], max_tokens=max_tokens, temperature=0, stream=True
    )
    for text in (choice.delta.content for chunk in stream for choice in chunk.choices):
        sys.stdout.write(text or "")
        sys.stdout.flush()
    sys.stdout.write("\n")


def _print_with_times(
    client: openai.OpenAI, model: str, message: ChatCompletionUserMessageParam, max_tokens: int
) -> None:
    answer = client.chat.completions.create(
        model=model, messages=[message], max_tokens=max_tokens, temperature=0,
        extra_headers=TIMES_HEADER,
    )  # fmt: skip
    sys.stdout.write(f"{answer.choices[0].message.content}\n")
    report = StageReport.parse((answer.model_extra or {}).get("triptych"))
    sys.stdout.write(_lines(report) + "\n")


def _lines(report: StageReport) -> str:
    rows: Iterable[tuple[str, str]] = (
        *((stage, f"{1000 * seconds:.1f} ms") for stage, seconds in report.seconds.items()),
        *((count, str(number)) for count, number in report.counts.items()),
    )
    return "\n".join(f"  {name:<24}{value:>12}" for name, value in rows) or "  (no times came back)"


def _told(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"])
    return error.message
