"""``triptych validate`` and ``triptych render``: what a manifest means, without a cluster."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from triptych_operator.api.manifests import check_for_cluster, read_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.state import desired_state
from triptych_operator.desired.text import as_yaml

if TYPE_CHECKING:
    from argparse import _SubParsersAction

OPERATOR_NAMESPACE: Final = "triptych-system"  # where docs/install.md installs it
DEFAULT_IMAGE: Final = f"triptych-worker:{importlib.metadata.version('triptych')}"


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds both commands."""
    validate = commands.add_parser(
        "validate",
        help="check a manifest as the cluster would",
        description="Checks a MultimodalService manifest with the rules of the cluster, and names "
        "every field that is wrong.",
    )
    _add_file(validate)
    validate.set_defaults(run=run_validate)
    render = commands.add_parser(
        "render",
        help="print what a manifest becomes in a cluster",
        description="Prints the manifests that the operator applies for a MultimodalService.",
    )
    _add_file(render)
    render.add_argument(
        "--image",
        default=DEFAULT_IMAGE,
        help="image of all tiers unless the manifest names one (default: %(default)s)",
    )
    render.add_argument(
        "--metrics",
        choices=list(Metrics),
        type=Metrics,
        default=Metrics.EMBEDDED,
        help="by which way autoscalers get at what the pods measure (default: %(default)s)",
    )
    render.add_argument(
        "--operator-namespace",
        default=OPERATOR_NAMESPACE,
        help="where the operator runs: its pods there reach the service's (default: %(default)s)",
    )
    render.set_defaults(run=run_render)


def run_validate(options: argparse.Namespace) -> int:
    """Prints that the manifest is valid; 0."""
    service = _read(options.file)
    tiers = ", ".join(
        f"{tier} {service.spec.tier(tier).initial_replicas}" for tier in service.spec.topology.tiers
    )
    name = service.metadata.name
    sys.stdout.write(f"{options.file}: {name} is valid: {service.spec.topology} ({tiers})\n")
    return 0


def run_render(options: argparse.Namespace) -> int:
    """Prints the manifests as YAML documents; 0."""
    service = _read(options.file)
    platform = Platform(
        image=options.image,
        metrics=options.metrics,
        operator_namespace=options.operator_namespace,
    )
    manifests = desired_state(service, platform)
    sys.stdout.write(as_yaml(manifests))
    return 0


def _read(path: Path) -> MultimodalService:
    service = read_service(path)
    check_for_cluster(service, str(path))
    return service


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", type=Path, required=True, help="manifest to read")
