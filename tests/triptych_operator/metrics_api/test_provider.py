"""The embedded provider from its first look on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from api_server import ApiServer
from cluster.certificates import Authority, KeyPair
from cluster.ports import free_port
from cluster.waiting import eventually
from metrics_api.fronts import FRONT, put_chart, put_front_proxy
from triptych_contract.errors import Unavailable
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import CONFIG_MAP, METRICS_API
from triptych_operator.metrics_api.certificates import RENEWED, SERVING
from triptych_operator.metrics_api.provider import EmbeddedProvider
from triptych_operator.metrics_api.registration import API_SERVICE
from triptych_operator.metrics_api.server import MetricsServer
from triptych_operator.signals.board import SignalBoard

SECONDS = 30.0


class Clock:
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def front_proxy(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki", "front-proxy-ca")


@contextlib.contextmanager
def running(provider: EmbeddedProvider) -> Iterator[asyncio.Task[None]]:
    task = asyncio.create_task(provider.run())
    try:
        yield task
    finally:
        task.cancel()


async def serial_number(port: int, pair: KeyPair) -> int:
    """Calls as the API server, whoever serves; which certificate that is."""
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    tls.load_cert_chain(pair.certificate, pair.key)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return hash(found)


async def test_it_serves_and_registers_itself(
    server: ApiServer, api: Api, front_proxy: Authority
) -> None:
    put_chart(server)
    put_front_proxy(server, front_proxy.certificate.read_text())
    front = replace(FRONT, address="127.0.0.1", port=free_port())
    provider = EmbeddedProvider(api, SignalBoard(30), front, list, Clock())
    with running(provider) as task:
        await eventually(lambda: len(server.writes) == 2, "two writes", seconds=SECONDS, of=task)
        found = server.get(METRICS_API, "", API_SERVICE)
        assert found is not None
        trusted = base64.b64decode(found["spec"]["caBundle"]).decode()
        tls = ssl.create_default_context(cadata=trusted)
        pair = front_proxy.issue("front-proxy-client")
        tls.load_cert_chain(pair.certificate, pair.key)
        url = f"https://127.0.0.1:{front.port}/apis"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=tls, server_hostname=front.host) as answer,
        ):
            assert answer.status == 200
    assert provider.problem() == ""


async def test_without_a_front_proxy_nobody_is_let_in_and_the_reason_is_told(
    server: ApiServer, api: Api
) -> None:
    put_chart(server)
    front = replace(FRONT, address="127.0.0.1", port=free_port())
    provider = EmbeddedProvider(api, SignalBoard(30), front, list, Clock())
    with running(provider) as task:
        await eventually(provider.problem, "a problem", seconds=SECONDS, of=task)
        assert "names no front proxy" in provider.problem()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", front.port, ssl=ssl.create_default_context())
    assert server.writes == []


async def test_certificates_are_renewed_when_due_and_when_the_front_proxy_changes(
    server: ApiServer, api: Api, front_proxy: Authority, tmp_path: Path
) -> None:
    put_chart(server)
    put_front_proxy(server, front_proxy.certificate.read_text())
    clock, pair = Clock(), front_proxy.issue("front-proxy-client")
    provider = EmbeddedProvider(api, SignalBoard(30), FRONT, list, clock)
    async with MetricsServer(SignalBoard(30), "127.0.0.1", 0, clock) as serving:
        await provider.look(serving)
        first = await serial_number(serving.port, pair)
        await provider.look(serving)
        assert await serial_number(serving.port, pair) == first
        clock.ahead = SERVING - RENEWED + timedelta(minutes=1)
        await provider.look(serving)
        second = await serial_number(serving.port, pair)
        assert second != first
        renewed = Authority(tmp_path / "renewed", "front-proxy-ca")
        put_front_proxy(server, renewed.certificate.read_text())
        await provider.look(serving)
        third = await serial_number(serving.port, renewed.issue("front-proxy-client"))
        assert third not in (first, second)


async def test_what_fails_is_told_until_it_is_over(
    server: ApiServer, api: Api, front_proxy: Authority
) -> None:
    put_chart(server)
    told: list[str] = []
    provider = EmbeddedProvider(
        api, SignalBoard(30), FRONT, lambda: told.append(provider.problem()), Clock()
    )
    async with MetricsServer(SignalBoard(30), "127.0.0.1", 0, Clock()) as serving:
        await provider.look(serving)
        assert "front proxy" in provider.problem()
        put_front_proxy(server, front_proxy.certificate.read_text())
        await provider.look(serving)
        assert provider.problem() == ""
        server.remove(METRICS_API, "", API_SERVICE)
        await provider.look(serving)
        assert "there is no APIService" in provider.problem()
        # What was known of the front proxy holds while the API server does not say.
        server.remove(CONFIG_MAP, "kube-system", "extension-apiserver-authentication")
        await provider.look(serving)
        assert "front proxy" in provider.problem()
        await serial_number(serving.port, front_proxy.issue("front-proxy-client"))
        await provider.look(serving)
    assert ["front proxy" in told[0], told[1], "no APIService" in told[2], len(told)] == [
        True,
        "",
        True,
        4,
    ]


async def test_an_address_that_is_taken_ends_it(api: Api) -> None:
    front = replace(FRONT, address="192.0.2.77")  # of nobody here
    with pytest.raises(Unavailable, match=r"cannot listen at 192\.0\.2\.77"):
        await EmbeddedProvider(api, SignalBoard(30), front, list, Clock()).run()
