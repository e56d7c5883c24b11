"""An API server that is scripted, over real HTTP, for tests of what calls one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_server import ApiServer
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import Api


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    async with Api(await connection.load(server.kubeconfig(tmp_path))) as made:
        yield made
