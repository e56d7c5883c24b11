"""Who refuses a resource, and why: the real API server, and ``triptych validate``."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.api import Api, ApiError, Object
from cluster.children import COLLECTIONS, SERVICES
from triptych_contract.errors import InvalidRequest
from triptych_operator.api.manifests import check_for_cluster, validate_service
from triptych_operator.desired.naming import MANAGER


@dataclass(frozen=True)
class Server:
    """The API server, asked in a namespace where nothing else is."""

    api: Api
    namespace: str

    async def stored(self, body: Mapping[str, Any]) -> Object:
        """What it would store of ``body``.

        Raises:
            ApiError: it would not.
        """
        return await self.api.create(SERVICES.format(self.namespace), body, dry_run=True)

    async def refuses(self, body: Mapping[str, Any]) -> str:
        """Why it would not create ``body``; empty when it would."""
        try:
            await self.stored(body)
        except ApiError as refusal:
            if refusal.status not in (400, 422):
                raise
            return str(refusal)
        return ""

    async def apply(self, manifest: Mapping[str, Any]) -> Object:
        """What it would store of a child that the operator applies."""
        path = COLLECTIONS[manifest["kind"]].format(self.namespace)
        name = manifest["metadata"]["name"]
        return await self.api.apply(f"{path}/{name}", manifest, manager=MANAGER, dry_run=True)


@asynccontextmanager
async def server(kubeconfig: Path) -> AsyncIterator[Server]:
    """The API server with a new namespace, which goes in the end."""
    name = f"verdicts-{uuid.uuid4().hex[:10]}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    async with Api(kubeconfig) as api:
        await api.create("/api/v1/namespaces", manifest)
        yield Server(api, name)
        await api.delete(f"/api/v1/namespaces/{name}")


def refused_here(body: Mapping[str, Any]) -> str:
    """Why ``triptych validate`` would not take ``body``; empty when it would."""
    try:
        check_for_cluster(validate_service(body, "test"), "test")
    except InvalidRequest as refusal:
        return refusal.message
    return ""
