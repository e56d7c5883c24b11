"""``triptych-worker TIER``: one stage process. Logs go to stderr, one line of JSON to stdout."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from triptych_contract.config import WorkerConfig
from triptych_contract.errors import InvalidModel, InvalidRequest, TriptychError
from triptych_contract.names import Env, Tier

from triptych_worker.startup import restart_tuned

_TIERS: Final = (Tier.ENCODER, Tier.PREFILL, Tier.DECODE, Tier.FUSED)
# Starting again would fail again: the configuration or the model has to change.
_MISCONFIGURED: Final = 2
_FAILED: Final = 1
# Every operation of a forward pass takes the interpreter lock back from the event loop. The default
# lets it wait for 5 ms, a quarter of a decode step.
_SWITCH_SECONDS: Final = 0.0002


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until it is asked to stop. The exit status is 0 after a drain, 2 if the configuration
    or the model folder is wrong, 1 for everything else that keeps it from serving."""
    options = parser().parse_args(arguments)
    try:
        config = configured(options, os.environ)
        _serve(Tier(options.tier), config)
    except TriptychError as error:
        sys.stderr.write(f"triptych-worker: {error.message}\n")
        return _MISCONFIGURED if isinstance(error, InvalidModel | InvalidRequest) else _FAILED


def configured(options: argparse.Namespace, environment: Mapping[str, str]) -> WorkerConfig:
    """The configuration file, with the addresses that flags replace.

    Raises:
        InvalidRequest: no file is named, or it cannot be used.
    """
    path = options.config or environment.get(Env.CONFIG)
    if not path:
        raise InvalidRequest(f"no configuration: pass --config FILE or set {Env.CONFIG}")
    config = WorkerConfig.load(Path(path))
    flags = {
        "host": options.host,
        "grpc_port": options.grpc_port,
        "metrics_port": options.metrics_port,
        "advertise": options.advertise,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    return config.model_copy(update={"listen": config.listen.model_copy(update=given)})


def _serve(tier: Tier, config: WorkerConfig) -> NoReturn:
    restart_tuned(tier)
    # torch takes seconds to load: not for --help or a wrong configuration
    from triptych_worker.serving.crashes import end_with_any_thread  # noqa: PLC0415
    from triptych_worker.serving.logs import log_to_stderr  # noqa: PLC0415
    from triptych_worker.serving.process import (  # noqa: PLC0415
        StoppedWhileLoadingError,
        run,
    )

    sys.setswitchinterval(_SWITCH_SECONDS)
    log_to_stderr()
    end_with_any_thread()
    with suppress(StoppedWhileLoadingError):
        asyncio.run(run(tier, config, _announce))
    _leave()


def _announce(addresses: Mapping[str, str]) -> None:
    sys.stdout.write(json.dumps(addresses) + "\n")
    sys.stdout.flush()


def _leave() -> NoReturn:
    """Ends the process now that all is given back: the interpreter would take seconds to dismantle
    torch, and a thread that still loads a model cannot be interrupted."""
    sys.stderr.flush()
    os._exit(0)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="triptych-worker", description=__doc__)
    made.add_argument("tier", choices=[str(tier) for tier in _TIERS])
    made.add_argument("--config", metavar="FILE", help=f"JSON; default: ${Env.CONFIG}")
    made.add_argument("--host", help="address to listen on")
    made.add_argument("--grpc-port", type=_port, help="0 takes a free one")
    made.add_argument("--metrics-port", type=_port, help="0 takes a free one")
    made.add_argument("--advertise", metavar="HOST", help="address that peers reach")
    return made


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is 0 to 65535")
    return port
