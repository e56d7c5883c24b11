"""One namespace with an operator, and what users see of a resource in it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.api import Api, ApiError, Object
from cluster.children import COLLECTIONS, SERVICES
from cluster.kubectl import Cluster
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from mms_builders import manifest

SECONDS: Final = 60.0  # for anything to come; on a machine that others use too
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{}/events"

Condition = Mapping[str, Any]


@dataclass(frozen=True)
class Served:
    """The namespace, seen as its administrator."""

    api: Api
    namespace: str
    operator: OperatorProcess

    def path(self, kind: str, name: str = "") -> str:
        """Where a child, or a collection of children, is."""
        collection = {**COLLECTIONS, "MultimodalService": SERVICES, "Event": EVENTS}[kind]
        return collection.format(self.namespace) + (f"/{name}" if name else "")

    async def apply(self, name: str = "shapes", **changes: object) -> Object:
        """Has a user apply the resource."""
        body = manifest(**changes)
        body["metadata"]["name"] = name
        return await self.api.apply(self.path("MultimodalService", name), body, manager="user")

    async def resource(self, name: str = "shapes") -> Object:
        """The resource as it stands."""
        return await self.api.get(self.path("MultimodalService", name))

    async def condition(self, type_: str, name: str = "shapes") -> Condition:
        """A condition; empty where it is not there."""
        return conditions(await self.resource(name)).get(type_, {})

    async def until(
        self, type_: str, status: str, reason: str = "", name: str = "shapes", message: str = ""
    ) -> Condition:
        """Waits until a condition is so, about the generation that stands; ``reason`` and
        ``message`` where given."""

        async def look() -> Condition | None:
            resource = await self.resource(name)
            found = conditions(resource).get(type_, {})
            so = found.get("status") == status and reason in ("", found.get("reason"))
            so = so and message in ("", found.get("message"))
            current = found.get("observedGeneration") == resource["metadata"]["generation"]
            return found if so and current else None

        try:
            found = await eventually(look, f"{type_}={status} {reason}", seconds=SECONDS)
        except TimeoutError as error:
            stands = (await self.resource(name)).get("status")
            raise TimeoutError(f"{error}\n{stands}\n{self.operator.tail()}") from error
        assert found is not None
        return found

    async def absent(self, type_: str) -> bool:
        """Whether a condition is not there at all."""
        return not await self.condition(type_)

    async def told(self, *expected: tuple[str, str]) -> None:
        """Waits until the Events are these; each is posted after the status that it is about."""

        async def look() -> bool:
            return await self.events() == list(expected)

        try:
            await eventually(look, f"Events {expected}", seconds=SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; there are {await self.events()}") from error

    async def events(self) -> list[tuple[str, str]]:
        """Type and reason of all Events about resources, oldest first."""
        found = [
            one
            for one in await self.api.items(self.path("Event"))
            if one["regarding"]["kind"] == "MultimodalService"
        ]
        return [
            (one["type"], one["reason"]) for one in sorted(found, key=lambda one: one["eventTime"])
        ]


def conditions(resource: Object) -> dict[str, Condition]:
    """The conditions by type."""
    return {one["type"]: one for one in resource.get("status", {}).get("conditions", ())}


async def no_more_deployments(one: Served) -> bool:
    """Whether a policy or quota that forbids a Deployment of decodes is in force: by a dry run."""
    labels = {"app": "probe"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    probe = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shapes-decode"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    try:
        await one.api.create(one.path("Deployment"), probe, dry_run=True)
    except ApiError:
        return True
    return False


@asynccontextmanager
async def served(
    cluster: Cluster, folder: Path, *, kubeconfig: Path | None = None
) -> AsyncIterator[Served]:
    """A namespace of its own with an operator that serves it alone, by ``kubeconfig`` if given."""
    async with namespace_of_its_own(cluster) as (api, namespace):
        log = folder / f"{namespace}.log"
        async with OperatorProcess(kubeconfig or cluster.kubeconfig, log, namespace) as operator:
            yield Served(api, namespace, operator)


@asynccontextmanager
async def namespace_of_its_own(cluster: Cluster) -> AsyncIterator[tuple[Api, str]]:
    """A namespace, and the API server as its administrator."""
    namespace = f"served-{uuid.uuid4().hex[:8]}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    async with Api(cluster.kubeconfig) as api:
        await api.create("/api/v1/namespaces", made)
        try:
            yield api, namespace
        finally:
            await api.delete(f"/api/v1/namespaces/{namespace}")
