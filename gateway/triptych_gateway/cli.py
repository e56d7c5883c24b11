"""``triptych-gateway``: starts a gateway from its configuration file.

Imports nothing heavy itself: the processes that decode pictures import this module again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from triptych_contract.config import GatewayConfig
from triptych_contract.errors import InvalidModel, InvalidRequest, TriptychError
from triptych_contract.names import Env

if TYPE_CHECKING:
    from triptych_gateway.server import Addresses


# Starting again would fail again: the configuration or the model has to change.
_MISCONFIGURED: Final = 2
_FAILED: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until a signal. The exit status is 0 after a drain, 2 if the configuration or the model
    folder is wrong, 1 for everything else that keeps it from serving."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format='time=%(asctime)s level=%(levelname)s logger=%(name)s msg="%(message)s"',
    )
    from triptych_gateway.server import serve  # noqa: PLC0415 - see the module's docstring

    try:
        config = GatewayConfig.load(Path(options.config))
        asyncio.run(serve(config, _announce))
    except TriptychError as error:
        sys.stderr.write(f"triptych-gateway: {error.message}\n")
        return _MISCONFIGURED if isinstance(error, InvalidModel | InvalidRequest) else _FAILED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="triptych-gateway", description=__doc__)
    configured = os.environ.get(Env.CONFIG)
    parser.add_argument(
        "--config",
        default=configured,
        required=configured is None,
        help=f"JSON file of the gateway's configuration (default: ${Env.CONFIG})",
    )
    return parser


def _announce(addresses: Addresses) -> None:
    sys.stdout.write(json.dumps(asdict(addresses)) + "\n")
    sys.stdout.flush()
