"""``triptych operator``: the process that the cluster runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from triptych_operator.cli.manifests import DEFAULT_IMAGE
from triptych_operator.controller.settings import Election, Listen, OperatorSettings
from triptych_operator.desired.platform import Platform

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "operator",
        help="keep a cluster's services as their manifests declare",
        description="Reconciles MultimodalServices until it is stopped. Finds the cluster by "
        "KUBECONFIG, or as a pod of it.",
    )
    command.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="serve this namespace alone; may be given several times (default: all)",
    )
    command.add_argument(
        "--image",
        default=DEFAULT_IMAGE,
        help="image of all tiers unless a manifest names one (default: %(default)s)",
    )
    election = command.add_mutually_exclusive_group()
    election.add_argument(
        "--election-namespace",
        help="where the Lease is by which replicas choose a leader (default: the pod's own)",
    )
    election.add_argument(
        "--no-election", action="store_true", help="this is the only replica: act at once"
    )
    command.add_argument(
        "--listen",
        default="0.0.0.0:8080",
        type=_listen,
        help="address of /healthz, /readyz and /metrics (default: %(default)s)",
    )
    command.add_argument(
        "--no-cache-flush",
        action="store_true",
        help="do not make caches follow the encoder; for an operator that cannot reach pods",
    )
    command.add_argument("--verbose", action="store_true", help="log more")
    command.set_defaults(run=run_operator)


def run_operator(options: argparse.Namespace) -> int:
    """Operates until SIGTERM or SIGINT; 0."""
    # kopf and the client of Kubernetes take a second to load: not for the other commands.
    from triptych_operator.controller.process import operate  # noqa: PLC0415

    operate(_settings(options), verbose=options.verbose)
    return 0


def _settings(options: argparse.Namespace) -> OperatorSettings:
    kubeconfig = os.environ.get("KUBECONFIG")
    election = None
    if not options.no_election:
        election = Election(options.election_namespace or _own_namespace())
    return OperatorSettings(
        platform=Platform(image=options.image),
        kubeconfig=Path(kubeconfig) if kubeconfig else None,
        namespaces=tuple(options.namespace),
        election=election,
        listen=options.listen,
        flush_caches=not options.no_cache_flush,
    )


def _own_namespace() -> str:
    """The namespace that this process runs in as a pod, or ``default``."""
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return "default"


def _listen(text: str) -> Listen:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return Listen(host, int(port))
