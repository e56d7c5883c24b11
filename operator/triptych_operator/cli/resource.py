"""A resource in the cluster, for the commands that look at one."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych_contract.errors import NotFound, Unavailable

from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.api.status import ServiceStatus, status_in
from triptych_operator.cluster.refusals import FORBIDDEN, Refusal
from triptych_operator.desired import naming
from triptych_operator.observed.store import ServiceKey

if TYPE_CHECKING:
    from triptych_operator.cluster.api import Api


@dataclass(frozen=True, slots=True)
class Found:
    """What of a resource the commands show."""

    namespace: str
    name: str
    generation: int
    topology: str
    status: ServiceStatus


class Resource:
    """One resource, and what belongs to it, through the API server."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    @property
    def key(self) -> ServiceKey:
        """Which resource it is."""
        return ServiceKey(self._namespace, self._name)

    async def read(self) -> Found:
        """What of the resource is shown, as it stands.

        Raises:
            NotFound: there is none of that name.
        """
        body = await self._body()
        return Found(
            namespace=self._namespace,
            name=self._name,
            generation=body["metadata"]["generation"],
            topology=body["spec"]["topology"],
            status=status_in(body),
        )

    async def service(self) -> MultimodalService:
        """The resource itself, as it stands.

        Raises:
            NotFound: there is none of that name.
            InvalidRequest: its spec is of another version than this command.
        """
        body = await self._body()
        return validate_service(body, f"{self._namespace}/{self._name}")

    async def pods(self) -> list[Mapping[str, Any]]:
        """Its pods, as the API server hands them out."""
        from triptych_operator.cluster.kinds import POD  # noqa: PLC0415

        selector = f"{naming.MANAGED_BY}={naming.MANAGER},{naming.INSTANCE}={self._name}"
        pages = self._api.pages(POD, self._namespace, selector)
        return [body async for page in pages for body in page.items()]

    async def page(self, pod: str, port: int, path: str) -> str:
        """What a pod serves by HTTP at ``path``."""
        where = f"/api/v1/namespaces/{self._namespace}/pods/{pod}:{port}/proxy/{path}"
        return await self._api.text(where)

    async def page_if_any(self, pod: str, port: int, path: str) -> str | None:
        """What a pod serves by HTTP at ``path``; ``None`` when it does not answer.

        Raises:
            Refusal: nobody may be asked.
        """
        try:
            return await self.page(pod, port, path)
        except Refusal as refused:
            if refused.status == FORBIDDEN:
                raise
            return None

    async def _body(self) -> Mapping[str, Any]:
        from triptych_operator.cluster.kinds import SERVICE_RESOURCE  # noqa: PLC0415

        body = await self._api.find(SERVICE_RESOURCE, self._namespace, self._name)
        if body is None:
            raise NotFound(
                f"no MultimodalService {self._name} in namespace {self._namespace}; "
                "`kubectl get mms -A` lists all of them"
            )
        return body

    async def annotate(self, annotation: str, value: str) -> None:
        """Sets an annotation of the resource.

        Raises:
            NotFound: there is none of that name.
        """
        from triptych_operator.cluster.kinds import SERVICE_RESOURCE  # noqa: PLC0415

        await self.read()
        manifest = {
            "apiVersion": SERVICE_RESOURCE.api_version,
            "kind": SERVICE_RESOURCE.name,
            "metadata": {
                "namespace": self._namespace,
                "name": self._name,
                "annotations": {annotation: value},
            },
        }
        await self._api.apply(SERVICE_RESOURCE, manifest, manager="triptych-command")


def add_resource_arguments(command: argparse.ArgumentParser) -> None:
    """Adds what says which resource of which cluster."""
    command.add_argument("name", help="name of the MultimodalService")
    command.add_argument(
        "-n", "--namespace", default="default", help="its namespace (default: %(default)s)"
    )
    command.add_argument(
        "--kubeconfig", type=Path, help="the cluster to ask (default: KUBECONFIG, ~/.kube/config)"
    )


@asynccontextmanager
async def opened(options: argparse.Namespace) -> AsyncIterator[Resource]:
    """The resource that the arguments name.

    Raises:
        Unavailable: the API server refused, or did not answer.
    """
    # The client of Kubernetes takes a second to load: not for the other commands.
    from triptych_operator.cluster.api import Api  # noqa: PLC0415
    from triptych_operator.cluster.connection import load  # noqa: PLC0415

    async with Api(await load(options.kubeconfig)) as api:
        try:
            yield Resource(api, options.namespace, options.name)
        except Refusal as refused:
            raise Unavailable(refused.message) from refused


def find(options: argparse.Namespace) -> Found:
    """The resource that the arguments name.

    Raises:
        NotFound: there is none of that name.
        Unavailable: the API server refused, or did not answer.
    """
    return asyncio.run(_find(options))


async def _find(options: argparse.Namespace) -> Found:
    async with opened(options) as resource:
        return await resource.read()
