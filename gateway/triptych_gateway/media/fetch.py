"""Fetching a picture over https from an address that was checked, and from no other."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from triptych_contract.errors import InvalidRequest, TooLarge
from yarl import URL

from triptych_gateway.media.addresses import Address, Network, is_allowed, is_public
from triptych_gateway.media.urls import Target, parse_target, redirected

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CHUNK: Final = 64 * 1024
_HEADERS: Final = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "triptych"}


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """All addresses of ``host``, as the system's resolver answers."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


class Fetcher:
    """Gets pictures by URL within limits of size, time and address."""

    def __init__(
        self,
        *,
        max_bytes: int,
        seconds: float,
        networks: Sequence[Network] = (),
        resolve: Resolve = resolve_by_system,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._networks = tuple(networks)
        self._resolve = resolve
        self._tls = tls or ssl.create_default_context()

    async def fetch(self, url: str) -> bytes:
        """The bytes behind ``url``; redirects are followed, each checked like the first.

        Raises:
            InvalidRequest: refused by policy, unreachable, too slow, or not answered with 200.
            TooLarge: more than the limit.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(parse_target(url))
        except TimeoutError as error:
            raise InvalidRequest(
                f"an image URL did not answer within {self._seconds:g} seconds"
            ) from error

    async def _follow(self, target: Target) -> bytes:
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._get(target, await self._checked(target))
            if isinstance(answer, bytes):
                return answer
            target = answer
        raise InvalidRequest(f"an image URL redirects more than {_MAX_REDIRECTS} times")

    async def _checked(self, target: Target) -> Sequence[Address]:
        """The addresses of ``target``; one that may not be fetched from refuses them all."""
        addresses = [target.literal] if target.literal else await self._lookup(target)
        for address in addresses:
            allowed = is_allowed(address, self._networks)
            if not allowed and not is_public(address):
                raise InvalidRequest("an image URL leads to an address that is not public")
            if not allowed and not target.secure:
                raise InvalidRequest("an image URL must use https")
        return addresses

    async def _lookup(self, target: Target) -> Sequence[Address]:
        try:
            texts = await self._resolve(target.host, target.port)
            addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in texts]
        except (OSError, ValueError) as error:
            raise InvalidRequest("the host of an image URL cannot be resolved") from error
        if not addresses:
            raise InvalidRequest("the host of an image URL has no address")
        return addresses

    async def _get(self, target: Target, addresses: Sequence[Address]) -> bytes | Target:
        """The body, or where the answer redirects to."""
        url = URL(target.href, encoded=True)
        if (url.host or "").lower() != target.host or url.port != target.port:
            raise InvalidRequest("an image URL is written in a way that is not supported")
        connector = aiohttp.TCPConnector(
            resolver=_Pinned(target.host, addresses), use_dns_cache=False, force_close=True
        )
        try:
            async with (
                aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
                session.get(
                    url, headers=_HEADERS, allow_redirects=False, ssl=self._tls
                ) as response,
            ):
                if response.status in _REDIRECTS:
                    return redirected(target, response.headers.get("Location", ""))
                if response.status != 200:
                    raise InvalidRequest(f"an image URL answered with status {response.status}")
                return await self._body(response)
        except aiohttp.ClientError as error:
            raise InvalidRequest("an image URL could not be fetched") from error

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if (response.content_length or 0) > self._max_bytes:
            raise self._too_large()
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > self._max_bytes:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"an image is larger than {self._max_bytes} bytes")


class _Pinned(AbstractResolver):
    """Answers one host with the addresses that were checked, so no second lookup can differ."""

    def __init__(self, host: str, addresses: Sequence[Address]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The checked addresses.

        Raises:
            OSError: another host than the checked one.
        """
        if host.strip("[]").lower() != self._host:
            raise OSError("another host than the one that was checked")
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Holds nothing."""
