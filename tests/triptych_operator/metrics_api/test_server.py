"""The metrics API as its callers find it: the API server's front proxy, and everybody else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cluster.certificates import Authority as FrontProxyAuthority
from cluster.certificates import KeyPair
from triptych_contract.errors import Unavailable
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.metrics_api.certificates import Authority
from triptych_operator.metrics_api.front_proxy import FrontProxy
from triptych_operator.metrics_api.server import MetricsServer
from triptych_operator.observed.store import ServiceKey
from triptych_operator.signals.board import SignalBoard, TierSignals

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
HOST = "triptych-metrics.triptych-system.svc"
BASE = "/apis/external.metrics.k8s.io/v1beta1"
BACKLOG = f"{BASE}/namespaces/models/triptych_encoder_backlog_tokens"


@dataclass
class Running:
    """A server, and calls to it as any client."""

    server: MetricsServer
    board: SignalBoard
    authority: Authority
    front_proxy: FrontProxyAuthority
    folder: Path

    def certificate(self, name: str = "front-proxy-client") -> KeyPair:
        """One of the front proxy's authority."""
        return self.front_proxy.issue(name)

    def secure(self, front_proxy: FrontProxyAuthority, *names: str) -> None:
        serving = self.authority.issue([HOST], datetime.now(UTC))
        allowed = FrontProxy(front_proxy.certificate.read_text(), frozenset(names))
        self.server.secure(serving, allowed)

    async def call(
        self,
        path: str,
        pair: KeyPair | None,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
    ) -> tuple[int, Any]:
        """Status and JSON of an answer.

        Raises:
            aiohttp.ClientError: the server did not let the client in.
        """
        tls = ssl.create_default_context(cadata=self.authority.certificate.decode())
        if pair is not None:
            tls.load_cert_chain(pair.certificate, pair.key)
        url = f"https://127.0.0.1:{self.server.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, ssl=tls, server_hostname=HOST, headers=headers) as answer,
        ):
            return answer.status, await answer.json()

    async def allowed(self, path: str, **given: Any) -> tuple[int, Any]:
        """As the API server calls."""
        return await self.call(path, self.certificate(), **given)

    def put(self, service: ServiceKey, **values: float) -> None:
        """Signals of the encoders of ``service``, as measured a moment ago."""
        at = asyncio.get_running_loop().time()
        signals = {Signal[name.upper()]: value for name, value in values.items()}
        self.board.put(service, TierSignals(Tier.ENCODER, at, 1, 1, signals))


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    board, front_proxy = (
        SignalBoard(lasting=30),
        FrontProxyAuthority(tmp_path / "pki", "front-proxy-ca"),
    )
    async with MetricsServer(board, "127.0.0.1", 0, lambda: NOW) as server:
        made = Running(server, board, Authority(datetime.now(UTC)), front_proxy, tmp_path)
        made.secure(front_proxy, "front-proxy-client")
        yield made


async def refused_at_the_door(running: Running, *given: Any) -> None:
    """The handshake ends it, before a word of the request is read."""
    with pytest.raises(aiohttp.ClientError) as error:
        await running.call(BACKLOG, *given)
    assert isinstance(error.value, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError)


async def test_the_front_proxy_is_answered(running: Running) -> None:
    running.put(ServiceKey("models", "shapes"), backlog_tokens=12.5)
    code, found = await running.allowed(BACKLOG)
    assert code == 200
    (item,) = found["items"]
    assert item["value"] == "12500m"
    assert item["timestamp"] in ("2026-11-30T11:59:59Z", "2026-11-30T12:00:00Z")


async def test_a_client_without_a_certificate_is_refused(running: Running) -> None:
    await refused_at_the_door(running, None)


async def test_a_bearer_token_opens_nothing(running: Running) -> None:
    headers = {"Authorization": "Bearer e30.e30.e30", "X-Remote-User": "system:admin"}
    await refused_at_the_door(running, None, headers)


async def test_a_certificate_of_another_authority_is_refused(
    running: Running, tmp_path: Path
) -> None:
    stolen = FrontProxyAuthority(tmp_path / "other", "front-proxy-ca").issue("front-proxy-client")
    await refused_at_the_door(running, stolen)


async def test_the_right_authority_with_another_name_is_forbidden(running: Running) -> None:
    running.put(ServiceKey("models", "shapes"), backlog_tokens=1)
    headers = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
    for path in (BACKLOG, BASE, "/apis", "/", "/openapi/v2"):
        code, found = await running.call(path, running.certificate("someone"), headers)
        assert (code, found["kind"], found["reason"]) == (403, "Status", "Forbidden")


async def test_without_names_the_authority_is_enough(running: Running) -> None:
    running.secure(running.front_proxy)
    assert (await running.call(BACKLOG, running.certificate("anyone")))[0] == 200


async def test_plain_http_is_no_way_in(running: Running) -> None:
    url = f"http://127.0.0.1:{running.server.port}/apis"
    with pytest.raises(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(url):
            pass


async def test_when_the_authority_changes_the_old_one_is_refused_and_the_new_one_let_in(
    running: Running, tmp_path: Path
) -> None:
    old = running.certificate()
    renewed = FrontProxyAuthority(tmp_path / "renewed", "front-proxy-ca")
    running.secure(renewed, "front-proxy-client")
    await refused_at_the_door(running, old)
    assert (await running.call(BACKLOG, renewed.issue("front-proxy-client")))[0] == 200


async def test_a_connection_lasts_as_long_as_its_front_proxy(
    running: Running, tmp_path: Path
) -> None:
    pair = running.certificate()
    tls = ssl.create_default_context(cadata=running.authority.certificate.decode())
    tls.load_cert_chain(pair.certificate, pair.key)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", running.server.port, ssl=tls, server_hostname=HOST
    )

    async def ask() -> bytes:
        writer.write(f"GET {BASE} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split()[0]))
        return head.split()[1]

    assert await ask() == b"200"
    running.secure(running.front_proxy, "front-proxy-client")
    assert await ask() == b"200"
    running.secure(FrontProxyAuthority(tmp_path / "renewed", "front-proxy-ca"))
    with pytest.raises((asyncio.IncompleteReadError, OSError)):
        await ask()
    writer.close()


async def test_it_answers_all_along_while_certificates_are_renewed(running: Running) -> None:
    pair = running.certificate()

    async def ask() -> list[int]:
        return [(await running.call(BASE, pair))[0] for _ in range(20)]

    async def renew() -> None:
        for _ in range(10):
            running.secure(running.front_proxy, "front-proxy-client")
            await asyncio.sleep(0)

    codes, _ = await asyncio.gather(ask(), renew())
    assert codes == [200] * 20


async def test_a_client_that_does_not_speak_holds_up_nobody(running: Running) -> None:
    async with contextlib.AsyncExitStack() as silent:
        for _ in range(50):
            _, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
            silent.callback(writer.close)
        async with asyncio.timeout(20):
            assert (await running.allowed(BASE))[0] == 200


async def test_values_are_those_of_the_namespace_that_the_selector_chooses(
    running: Running,
) -> None:
    running.put(ServiceKey("models", "shapes"), backlog_tokens=1)
    running.put(ServiceKey("models", "letters"), backlog_tokens=2)
    running.put(ServiceKey("research", "shapes"), backlog_tokens=4)
    chosen = {
        "": ["2", "1"],
        "?labelSelector=app.kubernetes.io%2Finstance%3Dshapes": ["1"],
        "?labelSelector=app.kubernetes.io/instance%20in%20(shapes,letters)": ["2", "1"],
        "?labelSelector=app.kubernetes.io/instance!=shapes": ["2"],
        "?labelSelector=app.kubernetes.io/component=encoder,app.kubernetes.io/name=triptych": [
            "2",
            "1",
        ],
        "?labelSelector=app.kubernetes.io/instance=nobody": [],
    }
    for query, values in chosen.items():
        code, found = await running.allowed(BACKLOG + query)
        assert code == 200
        assert [item["value"] for item in found["items"]] == values
    _, there = await running.allowed(BACKLOG.replace("models", "research"))
    assert [item["value"] for item in there["items"]] == ["4"]
    _, nowhere = await running.allowed(BACKLOG.replace("models", "nowhere"))
    assert nowhere["items"] == []


async def test_what_is_not_known_is_an_empty_list_and_never_zero(running: Running) -> None:
    service = ServiceKey("models", "shapes")
    running.put(service, queue_wait=0.5)  # the backlog is not among it
    assert (await running.allowed(BACKLOG))[1]["items"] == []
    old = asyncio.get_running_loop().time() - 31
    running.board.put(service, TierSignals(Tier.ENCODER, old, 1, 1, {Signal.BACKLOG_TOKENS: 7}))
    assert (await running.allowed(BACKLOG))[1]["items"] == []


async def test_what_is_not_there_is_not_found(running: Running) -> None:
    for path in (f"{BASE}/namespaces/models/other", f"{BASE}/namespaces/models", "/", "/api"):
        code, found = await running.allowed(path)
        assert (code, found["reason"]) == (404, "NotFound")


async def test_a_selector_that_is_none_is_a_bad_request(running: Running) -> None:
    code, found = await running.allowed(BACKLOG + "?labelSelector=a%3Db%3Dc")
    assert (code, found["reason"]) == (400, "BadRequest")
    assert "a=b=c" in found["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_written(running: Running, method: str) -> None:
    code, found = await running.allowed(BACKLOG, method=method)
    assert (code, found["reason"]) == (405, "MethodNotAllowed")


async def test_discovery_tells_of_every_metric(running: Running) -> None:
    _, groups = await running.allowed("/apis")
    _, group = await running.allowed("/apis/external.metrics.k8s.io")
    _, resources = await running.allowed(BASE)
    assert groups["groups"] == [group]
    assert group["preferredVersion"]["groupVersion"] == resources["groupVersion"]
    names = [one["name"] for one in resources["resources"]]
    assert "triptych_encoder_backlog_tokens" in names
    assert names == sorted(set(names))
    for path in ("/openapi/v2", "/openapi/v3"):
        assert (await running.allowed(path))[1]["paths"] == {}


async def test_a_port_that_is_taken_is_said(running: Running) -> None:
    other = MetricsServer(running.board, "127.0.0.1", running.server.port, lambda: NOW)
    with pytest.raises(Unavailable, match="cannot listen at"):
        async with other:
            pass
