"""Arguments in, exit status out: 0 done, 1 an error that is explained, 2 wrong usage."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence

from triptych_contract.errors import TriptychError

from triptych_operator.cli import ask, caches, manifests, operator, status, top, up

DESCRIPTION = """\
Triptych serves vision-language models with the vision encoder, the prefill and the decode as
three pools. This command runs a service on one machine, talks to it, tells what a manifest becomes
in a cluster, and is the operator that makes it so there.

  triptych up -f examples/shapes.yaml          serve a MultimodalService here; Ctrl-C ends it
  triptych ask --image F.png "What is this?"   ask it something
  triptych render -f examples/shapes.yaml      the manifests that the operator applies for it
  triptych status shapes                       how a service in a cluster is, and why
  triptych top shapes                          what its pods do now, and which tier limits
  triptych caches shapes                       what its caches hold, of which encoder's making
  triptych flush shapes                        have them drop what other encoders made
  triptych operator                            apply them for every MultimodalService of a cluster
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with ``arguments`` (default: those of the process)."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except TriptychError as error:
        sys.stderr.write(f"triptych: {error.message}\n")
        return 1
    except KeyboardInterrupt:
        return 130  # as a shell reports SIGINT
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; say nothing more
        return 141  # as a shell reports SIGPIPE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="triptych",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"triptych {importlib.metadata.version('triptych')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    up.add_to(commands)
    ask.add_to(commands)
    manifests.add_to(commands)
    operator.add_to(commands)
    status.add_to(commands)
    top.add_to(commands)
    caches.add_to(commands)
    return parser
