"""A namespace in which resources follow each other, under an operator that others share."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.api import Api, Object
from cluster.audit import AuditLog, Write
from cluster.children import COLLECTIONS, PODS, SERVICES, Children, children
from cluster.control_plane import ControlPlane
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from triptych_operator.api.service import MultimodalService

SETTLE_SECONDS: Final = 90.0  # on a machine that others use too
QUIET_SECONDS: Final = 1.0
NAME: Final = "shapes"
USER: Final = "triptych-lanes"


@dataclass(frozen=True)
class Lane:
    """One namespace. The operator is ``USER`` in the audit log."""

    api: Api
    operator: OperatorProcess
    audit: AuditLog
    namespace: str

    async def apply(self, body: Mapping[str, Any]) -> None:
        """Applies the resource as a user does."""
        await self.api.apply(self._path, body, manager="user")

    async def touch(self, value: str) -> None:
        """Changes something that the operator has to look at and that means nothing to it."""
        await self.api.merge(
            self._path, {"metadata": {"annotations": {"example.com/touch": value}}}
        )

    async def settle(self) -> None:
        """Waits until all is done and ready, and the operator has nothing more to write."""
        await self._eventually(self._is_done, "a ready resource")
        await self._eventually(self._is_quiet, "an operator that writes nothing more")

    async def clear(self) -> None:
        """Deletes the resource and waits until nothing of it is left."""
        await self.api.delete(self._path)
        await self._eventually(self._is_empty, "an empty namespace")

    async def children(self) -> Children:
        """What stands."""
        return await children(self.api, self.namespace)

    def writes(self, since: int) -> Counter[Write]:
        """What the operator has written here after ``since`` in the audit log."""
        return self.audit.writes(since, user=USER, namespace=self.namespace)

    @property
    def _path(self) -> str:
        return f"{SERVICES.format(self.namespace)}/{NAME}"

    async def seen(self) -> None:
        """Waits until the operator has acted on the resource as it is, ready or not."""
        await self._eventually(self._is_seen, "an operator that has seen the resource")

    async def _is_seen(self) -> bool:
        resource = await self.api.get(self._path)
        generation: int = resource["metadata"]["generation"]
        return bool(resource.get("status", {}).get("observedGeneration") == generation)

    async def _is_done(self) -> bool:
        resource = await self.api.get(self._path)
        autoscalers = await self.api.items(
            COLLECTIONS["HorizontalPodAutoscaler"].format(self.namespace)
        )
        return _is_ready(resource) and all(_is_told(one, resource) for one in autoscalers)

    async def _is_quiet(self) -> bool:
        since = self.audit.position()
        await asyncio.sleep(QUIET_SECONDS)
        return not self.writes(since) and await self._is_done()

    async def _is_empty(self) -> bool:
        return not await self.children() and not await self.api.items(PODS.format(self.namespace))

    async def _eventually(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        try:
            await eventually(look, what, seconds=SETTLE_SECONDS)
        except TimeoutError as error:
            found = await self.api.find(self._path)
            told = json.dumps(found and {key: found[key] for key in ("spec", "status")}, indent=1)
            raise TimeoutError(f"{error}\n{told}\n{self.operator.tail()}") from error


@asynccontextmanager
async def opened(
    control_plane: ControlPlane, folder: Path, count: int
) -> AsyncIterator[list[Lane]]:
    """``count`` lanes under one operator, whose files are in ``folder``."""
    names = [f"lane-{uuid.uuid4().hex[:10]}" for _ in range(count)]
    operators = control_plane.kubeconfig_for(USER, groups=("system:masters",))
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(control_plane.kubeconfig))
        for name in names:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await api.create("/api/v1/namespaces", namespace)
            stack.push_async_callback(api.delete, f"/api/v1/namespaces/{name}")
        operator = OperatorProcess(operators, folder / "operator.log", *names)
        await stack.enter_async_context(operator)
        yield [Lane(api, operator, control_plane.audit, name) for name in names]


def without_scaled(found: Children, service: MultimodalService) -> Children:
    """``found`` without the number of pods of tiers where an autoscaler has it."""
    scaled = {
        ("Deployment", f"{NAME}-{tier}")
        for tier in service.spec.topology.tiers
        if service.spec.tier(tier).autoscaling is not None
    }
    return {key: _unscaled(body) if key in scaled else body for key, body in found.items()}


def _unscaled(deployment: Mapping[str, Any]) -> dict[str, Any]:
    spec = {name: value for name, value in deployment["spec"].items() if name != "replicas"}
    return {**deployment, "spec": spec}


def _is_ready(resource: Object) -> bool:
    status = resource.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    current = status.get("observedGeneration") == resource["metadata"]["generation"]
    return current and conditions.get("Ready") == "True" and "Reconciling" not in conditions


def _is_told(autoscaler: Object, resource: Object) -> bool:
    """Whether it has said whether it can scale, and the resource's status says so too."""
    conditions = autoscaler.get("status", {}).get("conditions", ())
    active = {one["status"] for one in conditions if one["type"] == "ScalingActive"}
    limited = {
        f"{NAME}-{tier['name']}": bool(tier.get("limitedBy"))
        for tier in resource["status"]["tiers"]
    }
    return bool(active) and limited[autoscaler["metadata"]["name"]] == (active == {"False"})
