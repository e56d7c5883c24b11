"""Lists of many pages, as the real API server writes them: a custom resource's in another order."""

from __future__ import annotations

import json

from cluster.kubectl import Cluster
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import PAGE, Api
from triptych_operator.cluster.kinds import BY_NAME, SERVICE_RESOURCE

MODEL = {"source": "builtin://shapes", "revision": "1", "servedName": "shapes"}


async def test_all_pages_of_a_list_are_read_of_every_sort_of_kind(
    cluster: Cluster, namespace: str
) -> None:
    names = {f"many-{number:03}" for number in range(PAGE + 1)}
    made = [
        {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            **spec,
        }
        for name in names
        for api_version, kind, spec in (
            ("v1", "ConfigMap", {}),
            (
                "triptych.dev/v1alpha1",
                "MultimodalService",
                {"spec": {"model": MODEL, "topology": "Fused", "tiers": {"fused": {}}}},
            ),
        )
    ]
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    cluster.kubectl("create", "-f", "-", manifest=document)
    async with Api(await connection.load(cluster.kubeconfig)) as api:
        for kind in (BY_NAME["ConfigMap"], SERVICE_RESOURCE):
            for metadata_only in (False, True):
                pages = [
                    page
                    async for page in api.pages(kind, namespace, "", metadata_only=metadata_only)
                ]
                found = {item["metadata"]["name"] for page in pages for item in page.items()}
                assert names <= found, (kind.name, metadata_only, len(found))
                assert all(page.version > 0 for page in pages)
