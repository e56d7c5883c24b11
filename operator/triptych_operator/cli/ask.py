"""``triptych ask``: one question, with or without pictures, to a running service."""

from __future__ import annotations

import argparse
import base64
import mimetypes
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import openai
from openai.types.chat import (
    ChatCompletionContentPartParam,
    ChatCompletionUserMessageParam,
)
from triptych_contract.errors import InvalidRequest, TerminalError, Unavailable

from triptych_operator.cli.times import StageReport

if TYPE_CHECKING:
    from argparse import _SubParsersAction

DESCRIPTION = """\
Asks a running service and prints the answer, word by word in a terminal. Pictures come before the
question, in the order given. Works with every server of the OpenAI API.
"""
TIMES_HEADER: Final = {"x-triptych-times": "1"}
TIMEOUT: Final = 300.0  # seconds for the whole answer


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds this command."""
    parser = commands.add_parser(
        "ask",
        help="ask a running service",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", help="what to ask")
    parser.add_argument(
        "--image", type=Path, action="append", default=[], metavar="FILE",
        help="picture to ask about; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", help="the service (default: %(default)s)"
    )
    parser.add_argument("--model", help="name of the model (default: the first that is served)")
    parser.add_argument(
        "--max-tokens", type=int, default=256, help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--times", action="store_true", help="print the seconds of each stage too")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the answer; 0 when there is one."""
    message = user_message(options.question, options.image)
    client = openai.OpenAI(base_url=f"{options.url}/v1", api_key="none", timeout=TIMEOUT)
    try:
        model = options.model or _first_model(client)
        if options.times:
            _print_with_times(client, model, message, options.max_tokens)
        else:
            _print_as_it_comes(client, model, message, options.max_tokens)
    except openai.APIConnectionError as error:
        raise Unavailable(
            f"no answer from {options.url}: is a service running there? Start one with "
            "`triptych up -f examples/shapes.yaml`, or name another with --url"
        ) from error
    except openai.APIStatusError as error:
        raise TerminalError(
            f"{options.url} answered {error.status_code}: {_told(error)}"
        ) from error
    return 0


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
