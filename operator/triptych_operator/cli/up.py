"""``triptych up``: a MultimodalService on this machine, its tiers as processes."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import shutil
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from triptych_contract.config import Source
from triptych_contract.errors import InvalidModel, InvalidRequest, TriptychError, Unavailable
from triptych_contract.names import Port, Tier
from triptych_models.sources import model_folder, vision_folder

from triptych_operator.api.manifests import read_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.cli.stopping import StopSignals
from triptych_operator.local.plan import LocalPlan, PlannedProcess, plan_locally
from triptych_operator.local.supervisor import Place, Supervisor

if TYPE_CHECKING:
    from argparse import _SubParsersAction

DESCRIPTION = """\
Reads a MultimodalService manifest and serves it on this machine: every pod of every tier is a
process. Prints the URL when it serves. A process that dies is restarted. Ctrl-C lets everything
finish what it has begun and ends it; a second Ctrl-C ends it at once.
"""


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds this command."""
    parser = commands.add_parser(
        "up",
        help="serve a manifest on this machine",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-f", "--file", type=Path, required=True, help="manifest, such as examples/shapes.yaml"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address of the gateway (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=Port.HTTP,
        help="port of the gateway, 0 for a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=_threads,
        default=0,
        help="threads of each worker (default: the cores, shared evenly)",
    )
    parser.add_argument(
        "--logs", type=Path, help="folder for a log file of each process (default: a temporary one)"
    )
    parser.add_argument(
        "--start-timeout",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="how long each process may take until it serves (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM; 0 after a clean end."""
    service = read_service(options.file)
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    plan = plan_locally(service, cores, options.threads)
    _refuse_absent_model(service)
    _refuse_taken_port(options.host, options.port)
    state = Path(tempfile.mkdtemp(prefix="triptych-"))
    logs: Path = options.logs or state
    place = Place(state, logs, options.host, options.port, options.start_timeout)
    try:
        logs.mkdir(parents=True, exist_ok=True)
        asyncio.run(_serve(service, plan, place))
    except OSError as error:
        raise InvalidRequest(f"cannot make the folder {logs}: {error.strerror}") from error
    except TriptychError as error:
        # The configurations and logs stay, since they tell why.
        raise Unavailable(f"{error.message}\nlogs: {logs}  configurations: {state}") from error
    shutil.rmtree(state, ignore_errors=True)
    return 0


def program(service: MultimodalService, process: PlannedProcess, config: Path) -> list[str]:
    """The command line of one process: this very Python with the part's module."""
    if process.tier is Tier.GATEWAY:
        return [sys.executable, "-m", "triptych_gateway", "--config", str(config)]
    module = [sys.executable, "-m", "triptych_worker", process.tier, "--config", str(config)]
    return [*module, *service.spec.engine.args]


async def _serve(service: MultimodalService, plan: LocalPlan, place: Place) -> None:
    stop = StopSignals()
    # They take time and memory that the other commands, the operator above all, need not spend.
    from rich.console import Console  # noqa: PLC0415

    from triptych_operator.cli.terminal import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    console.print(_headline(service, plan, place), highlight=False, soft_wrap=True)
    progress = Progress(console)
    command = functools.partial(program, service)
    supervisor = Supervisor(service, plan, place, command, progress.report)
    try:
        with progress:
            address = await stop.unless_stopped(supervisor.start())
        if address is not None:
            sys.stdout.write(_invitation(address, service))
            sys.stdout.flush()
            await stop.unless_stopped(supervisor.watch())
    finally:
        with progress:
            await _end(supervisor, stop)


async def _end(supervisor: Supervisor, stop: StopSignals) -> None:
    """Drains; a signal meanwhile ends everything at once."""
    stop.forget()
    try:
        await stop.unless_stopped(supervisor.drain())
    finally:
        await supervisor.kill()


def _headline(service: MultimodalService, plan: LocalPlan, place: Place) -> str:
    count = Counter(process.tier for process in plan.processes)
    tiers = ", ".join(f"{number} {tier}" for tier, number in count.items())
    model = service.spec.model
    return (
        f"{service.metadata.name}: {model.source} as {service.spec.topology} ({tiers}), "
        f"{plan.threads} thread(s) a worker\nlogs in {place.logs}"
    )


def _invitation(address: str, service: MultimodalService) -> str:
    body = json.dumps(
        {
            "model": service.spec.model.served_name,
            "messages": [{"role": "user", "content": "Hello"}],
        }
    )
    return (
        f"\nserving {service.spec.model.served_name} at http://{address}/v1 (Ctrl-C ends it)\n\n"
        f'  triptych ask --url http://{address} --image PICTURE.png "QUESTION"\n'
        f"  curl http://{address}/v1/chat/completions -H 'content-type: application/json' "
        f"-d '{body}'\n"
    )


def _refuse_absent_model(service: MultimodalService) -> None:
    """Before processes start and each says so. What ``hf://`` names is for them to look up."""
    model = service.spec.model
    parts = [("spec.model", model_folder, model.source, model.revision)]
    if model.encoder is not None:
        encoder = model.encoder
        parts.append(("spec.model.encoder", vision_folder, encoder.source, encoder.revision))
    for field, folder, source, revision in parts:
        if source.startswith("hf://"):
            continue
        try:
            folder(Source(source=source, revision=revision))
        except InvalidModel as error:
            raise InvalidRequest(f"{field}: {error.message}") from error


def _refuse_taken_port(host: str, port: int) -> None:
    """Says at once what the gateway would only find after all workers have loaded."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # what follows names the address again
        raise InvalidRequest(
            f"cannot listen on {host} port {port}: {why}; choose another with --port"
        ) from error


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


def _threads(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"threads are a number from 1 on, not {text!r}")
    return int(text)
