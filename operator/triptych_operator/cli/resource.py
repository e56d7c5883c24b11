"""A resource in the cluster, for the commands that look at one."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from triptych_contract.errors import NotFound, Unavailable

from triptych_operator.api.status import ServiceStatus


@dataclass(frozen=True, slots=True)
class Found:
    """What of a resource the commands show."""

    namespace: str
    name: str
    generation: int
    topology: str
    status: ServiceStatus


def add_resource_arguments(command: argparse.ArgumentParser) -> None:
    """Adds what says which resource of which cluster."""
    command.add_argument("name", help="name of the MultimodalService")
    command.add_argument(
        "-n", "--namespace", default="default", help="its namespace (default: %(default)s)"
    )
    command.add_argument(
        "--kubeconfig", type=Path, help="the cluster to ask (default: KUBECONFIG, ~/.kube/config)"
    )


def find(options: argparse.Namespace) -> Found:
    """The resource that the arguments name.

    Raises:
        NotFound: there is none of that name.
        Unavailable: the API server refused, or did not answer.
    """
    return asyncio.run(_find(options.kubeconfig, options.namespace, options.name))


async def _find(kubeconfig: Path | None, namespace: str, name: str) -> Found:
    # The client of Kubernetes takes a second to load: not for the other commands.
    from triptych_operator.cluster.api import Api  # noqa: PLC0415
    from triptych_operator.cluster.connection import load  # noqa: PLC0415
    from triptych_operator.cluster.kinds import SERVICE_RESOURCE  # noqa: PLC0415
    from triptych_operator.cluster.refusals import Refusal  # noqa: PLC0415

    async with Api(await load(kubeconfig)) as api:
        try:
            body = await api.find(SERVICE_RESOURCE, namespace, name)
        except Refusal as refused:
            raise Unavailable(refused.message) from refused
    if body is None:
        raise NotFound(
            f"no MultimodalService {name} in namespace {namespace}; "
            "`kubectl get mms -A` lists all of them"
        )
    try:
        status = ServiceStatus.model_validate_json(json.dumps(body.get("status") or {}))
    except ValidationError as error:
        raise Unavailable(
            f"the status of {namespace}/{name} is of another version of Triptych: {error}"
        ) from error
    return Found(
        namespace=namespace,
        name=name,
        generation=body["metadata"]["generation"],
        topology=body["spec"]["topology"],
        status=status,
    )
