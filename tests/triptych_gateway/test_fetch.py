import asyncio
import ssl
from contextlib import asynccontextmanager

import pytest
import trustme
from aiohttp import web
from triptych_contract.errors import InvalidRequest, TooLarge
from triptych_gateway.media.addresses import parse_networks
from triptych_gateway.media.fetch import Fetcher

LOOPBACK = parse_networks(["127.0.0.0/8"])


def answering(addresses: dict[str, list[str]]):
    async def resolve(host: str, port: int) -> list[str]:
        if host not in addresses:
            raise OSError("no such host")
        return addresses[host]

    return resolve


def fetcher(hosts=None, networks=(), **options) -> Fetcher:
    settings = {"max_bytes": 1000, "seconds": 60.0} | options
    return Fetcher(networks=networks, resolve=answering(hosts or {}), **settings)


@asynccontextmanager
async def site(handler, tls: ssl.SSLContext | None = None):
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    web_site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await web_site.start()
    try:
        yield web_site._server.sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


async def hello(_: web.Request) -> web.Response:
    return web.Response(body=b"hello")


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/",
        "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://169.254.169.254/latest/meta-data",
        "https://[fd00:ec2::254]/", "https://10.0.0.1/", "https://0.0.0.0/",
        "http://127.0.0.1/",
    ],
)  # fmt: skip
async def test_addresses_that_are_not_public_are_refused_before_connecting(url):
    with pytest.raises(InvalidRequest, match="not public"):
        await fetcher().fetch(url)


async def test_a_name_that_leads_to_loopback_is_refused():
    with pytest.raises(InvalidRequest, match="not public"):
        await fetcher({"evil.example": ["127.0.0.1"]}).fetch("https://evil.example/")


async def test_one_private_address_among_public_ones_refuses_the_name():
    hosts = {"mixed.example": ["8.8.8.8", "fe80::1%eth0"]}
    with pytest.raises(InvalidRequest, match="not public"):
        await fetcher(hosts).fetch("https://mixed.example/")


async def test_a_public_address_by_plain_http_is_refused():
    with pytest.raises(InvalidRequest, match="must use https"):
        await fetcher({"plain.example": ["8.8.8.8"]}).fetch("http://plain.example/")


async def test_an_unknown_host_is_the_clients_fault():
    with pytest.raises(InvalidRequest, match="cannot be resolved"):
        await fetcher().fetch("https://missing.example/")


async def test_plain_http_works_inside_an_allowed_network():
    async with site(hello) as port:
        hosts = {"inside.example": ["127.0.0.1"]}
        assert await fetcher(hosts, LOOPBACK).fetch(f"http://inside.example:{port}/") == b"hello"


async def test_the_connection_goes_to_the_checked_address_with_tls_to_the_name():
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("named.example").configure_cert(server)
    authority.configure_trust(client)
    hosts = {"named.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    async with site(hello, server) as port:
        getting = fetcher(hosts, LOOPBACK, tls=client)
        assert await getting.fetch(f"https://named.example:{port}/") == b"hello"
        with pytest.raises(InvalidRequest, match="could not be fetched"):
            await getting.fetch(f"https://other.example:{port}/")


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/meta-data/", "https://10.0.0.1/", "//[::1]/", "file:///etc"],
)
async def test_a_redirect_is_checked_like_the_first_url(location):
    async def redirecting(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location})

    async with site(redirecting) as port:
        hosts = {"inside.example": ["127.0.0.1"]}
        with pytest.raises(InvalidRequest, match=r"not public|must start with https"):
            await fetcher(hosts, LOOPBACK).fetch(f"http://inside.example:{port}/")


async def test_three_redirects_are_followed_and_a_fourth_is_not():
    async def stepping(request: web.Request) -> web.Response:
        left = int(request.match_info["path"])
        if not left:
            return web.Response(body=b"there")
        return web.Response(status=307, headers={"Location": f"/{left - 1}"})

    async with site(stepping) as port:
        getting = fetcher({"inside.example": ["127.0.0.1"]}, LOOPBACK)
        assert await getting.fetch(f"http://inside.example:{port}/3") == b"there"
        with pytest.raises(InvalidRequest, match="more than 3 times"):
            await getting.fetch(f"http://inside.example:{port}/4")


async def test_an_error_status_is_told():
    async def missing(_: web.Request) -> web.Response:
        return web.Response(status=404)

    async with site(missing) as port:
        with pytest.raises(InvalidRequest, match="status 404"):
            await fetcher({"a.example": ["127.0.0.1"]}, LOOPBACK).fetch(f"http://a.example:{port}/")


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_beyond_the_limit_is_not_read_to_its_end(announced):
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        if announced:
            response.content_length = 10**9
        await response.prepare(request)
        for _ in range(10**4):
            await response.write(bytes(65536))
            sent += 65536
        return response

    async with site(endless) as port:
        with pytest.raises(TooLarge, match="larger than 1000 bytes"):
            await fetcher({"a.example": ["127.0.0.1"]}, LOOPBACK).fetch(f"http://a.example:{port}/")
    assert sent < 50 * 2**20


async def test_a_slow_server_is_given_up():
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with site(slow) as port:
        getting = fetcher({"a.example": ["127.0.0.1"]}, LOOPBACK, seconds=0.3)
        with pytest.raises(InvalidRequest, match=r"within 0\.3 seconds"):
            await getting.fetch(f"http://a.example:{port}/")
