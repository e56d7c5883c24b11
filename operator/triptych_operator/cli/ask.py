"""``triptych ask``: one question, with or without pictures, to a running service."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction

DESCRIPTION = """\
Asks a running service and prints the answer, word by word in a terminal. Pictures come before the
question, in the order given. Works with every server of the OpenAI API.
"""


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
    # The client takes a second to load: not for the other commands.
    from triptych_operator.cli.asking import Question, ask  # noqa: PLC0415

    ask(
        Question(options.question, tuple(options.image), options.model, options.max_tokens),
        options.url,
        times=options.times,
    )
    return 0
