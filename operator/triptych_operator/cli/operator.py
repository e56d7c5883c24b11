"""``triptych operator``: the process that the cluster runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from triptych_contract.errors import InvalidRequest

from triptych_operator.cli.manifests import DEFAULT_IMAGE
from triptych_operator.cluster.imports import spare_synchronous_client
from triptych_operator.controller.settings import Election, Listen, OperatorSettings
from triptych_operator.desired.platform import DEFAULT_PROMETHEUS, Metrics, Platform
from triptych_operator.metrics_api.front import Front

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
    _add_metrics_to(command)
    command.add_argument("--verbose", action="store_true", help="log more")
    command.set_defaults(run=run_operator)


def _add_metrics_to(command: argparse.ArgumentParser) -> None:
    metrics = command.add_argument_group("what autoscalers go by")
    metrics.add_argument(
        "--metrics",
        choices=list(Metrics),
        help="by which way they get at what the pods measure (default: embedded with "
        "--metrics-service, else none)",
    )
    metrics.add_argument(
        "--metrics-service",
        metavar="NAMESPACE/NAME",
        type=_service,
        help="for embedded: the Service that the APIService of external metrics names",
    )
    metrics.add_argument(
        "--metrics-address",
        metavar="ADDRESS:PORT",
        type=_listen,
        help="for embedded: where to listen, as the API server reaches this process",
    )
    metrics.add_argument(
        "--prometheus-url",
        default=DEFAULT_PROMETHEUS,
        help="for keda: the Prometheus that it asks (default: %(default)s)",
    )
    metrics.add_argument(
        "--no-signals",
        action="store_true",
        help="do not ask pods for their metrics; for an operator that cannot reach pods",
    )


def run_operator(options: argparse.Namespace) -> int:
    """Operates until SIGTERM or SIGINT; 0."""
    spare_synchronous_client()
    # kopf and the client of Kubernetes take a second to load: not for the other commands.
    from triptych_operator.controller.process import operate  # noqa: PLC0415

    operate(settings_of(options), verbose=options.verbose)
    return 0


def settings_of(
    options: argparse.Namespace, namespace_file: Path = _NAMESPACE_FILE
) -> OperatorSettings:
    """What the arguments ask for.

    Args:
        namespace_file: where a pod finds the namespace that it is in.

    Raises:
        InvalidRequest: of two that belong together one is missing.
    """
    kubeconfig = os.environ.get("KUBECONFIG")
    own_namespace = _own_namespace(namespace_file)
    election = None
    if not options.no_election:
        election = Election(options.election_namespace or own_namespace or "default")
    front = _front(options)
    metrics = options.metrics or (Metrics.EMBEDDED if front else Metrics.NONE)
    return OperatorSettings(
        platform=Platform(
            image=options.image,
            metrics=Metrics(metrics),
            prometheus_url=options.prometheus_url,
            operator_namespace=own_namespace,
            installation=election.namespace if election else own_namespace,
        ),
        kubeconfig=Path(kubeconfig) if kubeconfig else None,
        namespaces=tuple(options.namespace),
        election=election,
        listen=options.listen,
        flush_caches=not options.no_cache_flush,
        read_signals=not options.no_signals,
        front=front,
    )


def _front(options: argparse.Namespace) -> Front | None:
    """Where to serve signals, unless somebody else does.

    Raises:
        InvalidRequest: of the two flags that belong together one is missing.
    """
    service, address = options.metrics_service, options.metrics_address
    if options.metrics not in (None, Metrics.EMBEDDED) or (not options.metrics and not service):
        return None
    if service is None or address is None:
        raise InvalidRequest(
            "embedded metrics need a Service and an address to be called at: give both "
            "--metrics-service and --metrics-address, or --metrics=none"
        )
    return Front(service[0], service[1], address.host, address.port)


def _own_namespace(file: Path) -> str | None:
    """The namespace that this process runs in, if it is a pod."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return None


def _service(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return namespace, name


def _listen(text: str) -> Listen:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return Listen(host, int(port))
