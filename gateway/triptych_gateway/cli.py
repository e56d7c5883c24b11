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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from triptych_contract.config import GatewayConfig
from triptych_contract.errors import TriptychError
from triptych_contract.names import Env

if TYPE_CHECKING:
    from triptych_gateway.server import Addresses


def main(arguments: list[str] | None = None) -> None:
    """Runs until a signal; exits 0 after a drain, 2 if it cannot start."""
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
        sys.exit(2)


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
