"""``triptych top`` over an API server in memory, whose pods answer through it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from api_server import ApiServer, Call, refusing, status
from children_of import put_pod, resource
from rich.console import Console
from triptych_contract.names import Metric, Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.cli.resource import Resource
from triptych_operator.cli.top import looks
from triptych_operator.cli.top_view import rendered
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.desired.naming import COMPONENT, INSTANCE, MANAGED_BY

ON_BACKLOG = {"max": 5, "metrics": [{"signal": "BacklogTokens", "target": "1k"}]}
PAGE = f"# a page\n{Metric.RUNNING} 1\n{Metric.BACKLOG_TOKENS} 1300\n"


async def telling(call: Call) -> web.StreamResponse | None:
    """Pods that are asked for their metrics: one answers, the others do not."""
    if call.subresource != "proxy":
        return None
    if call.name == "shapes-encoder-0:9090":
        return web.Response(text=PAGE)
    return status(503, "ServiceUnavailable", "no answer")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        resource(running, tiers__encoder__autoscaling=ON_BACKLOG)
        for number in range(2):
            labels = {MANAGED_BY: "triptych", INSTANCE: "shapes", COMPONENT: "encoder"}
            name = f"shapes-encoder-{number}"
            put_pod(running, name, {"metadata": {"labels": labels}}, podIP="10.0.0.1")
        running.faults.append(telling)
        yield running


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    async with Api(await connection.load(server.kubeconfig(tmp_path))) as made:
        yield made


async def test_pods_are_asked_through_the_api_server_and_silent_ones_are_counted(api: Api) -> None:
    views = looks(Resource(api, "n", "shapes"), 0.01)
    await anext(views)
    view = await anext(views)
    encoder = view.tiers[0]
    assert (encoder.tier, encoder.ready, encoder.silent) == (Tier.ENCODER, 2, 1)
    [signal] = encoder.signals
    assert (signal.signal, signal.value) == (Signal.BACKLOG_TOKENS, 2600.0), "with the mean for one"
    assert view.limiting is Tier.ENCODER
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        console.print(rendered(view))
    assert captured.get().startswith("n/shapes   FullSplit   limited by encoder")


async def test_who_may_not_ask_pods_is_told_so(server: ApiServer, api: Api) -> None:
    forbidden = refusing("GET Pod shapes-encoder-0:9090", lambda: status(403, "Forbidden", "no"))
    server.faults.insert(0, forbidden)
    with pytest.raises(Refusal, match="no"):
        await anext(looks(Resource(api, "n", "shapes"), 0.01))


async def test_garbage_counts_as_silence(server: ApiServer, api: Api) -> None:
    async def garbage(call: Call) -> web.StreamResponse | None:
        return web.Response(text="<html>") if call.subresource == "proxy" else None

    server.faults.insert(0, garbage)
    view = await anext(looks(Resource(api, "n", "shapes"), 0.01))
    assert view.tiers[0].silent == 2
