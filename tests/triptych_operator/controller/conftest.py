"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_server import ApiServer
from desk import Desk
from scaling_scene import Scene
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import Api


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with (
        ApiServer() as server,
        Api(await connection.load(server.kubeconfig(tmp_path))) as api,
    ):
        yield Desk(server, api)


@pytest.fixture
def scene(desk: Desk) -> Scene:
    return Scene(desk)
