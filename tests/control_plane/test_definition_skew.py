"""An operator beside a definition of another version says so, changes nothing, and goes on when the
versions meet.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cluster.children import children
from cluster.kubectl import Cluster
from control_plane.served import Served, served
from triptych_operator.crd import version
from triptych_operator.crd.definition import schema_stamp, text

REVISION: Final = int(schema_stamp().partition("-")[0])


@pytest.fixture
async def one(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(cluster, tmp_path) as made:
        yield made
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", manifest=text())


def of_revision(revision: int) -> str:
    """Our definition, as it would be stamped in a version with another schema."""
    body: dict[str, Any] = copy.deepcopy(yaml.safe_load(text()))
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    stamp = f"{revision}-0123456789ab"
    schema["description"] = version.stamped("A service of another version.", stamp)
    return yaml.safe_dump(body)


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        (REVISION - 1, "DefinitionOlderThanOperator"),
        (REVISION + 1, "DefinitionNewerThanOperator"),
    ],
)
async def test_nothing_is_done_while_the_definition_is_of_another_version(
    one: Served, cluster: Cluster, revision: int, reason: str
) -> None:
    await one.apply()
    await one.until("Ready", "True", "AllTiersReady")
    before = await children(one.api, one.namespace)
    arguments = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    cluster.kubectl(*arguments, manifest=of_revision(revision))
    await one.until("Stalled", "True", reason)
    await one.until("Ready", "True", "AllTiersReady")  # what was seen last, as pods still serve
    await one.apply(topology="Fused")
    cluster.kubectl("delete", "configmap", "-n", one.namespace, "shapes-decode")
    del before["ConfigMap", "shapes-decode"]
    await asyncio.sleep(3)  # time enough for an operator that acts
    assert await children(one.api, one.namespace) == before

    cluster.kubectl(*arguments, manifest=text())
    await one.until("FusedReady", "True", "PodsReady")
    await one.until("Ready", "True", "AllTiersReady")
    assert await one.absent("Stalled")
