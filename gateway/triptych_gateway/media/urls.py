"""Reading a picture's URL once, the way browsers do, and refusing what could be read otherwise."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

import ada_url
from triptych_contract.errors import InvalidRequest

from triptych_gateway.media.addresses import Address

_MAX_LENGTH: Final = 8192
_DEFAULT_PORTS: Final = {"http:": 80, "https:": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in normal form, and what to connect to; ``literal`` if its host is an address."""

    href: str
    secure: bool
    host: str
    port: int
    literal: Address | None


def parse_target(url: str) -> Target:
    """Reads ``url``.

    Raises:
        InvalidRequest: not an http(s) URL of a host, or written in a way that parsers differ on.
    """
    if len(url) > _MAX_LENGTH:
        raise InvalidRequest(f"an image URL is longer than {_MAX_LENGTH} characters")
    if "\\" in url or any(character <= " " or character == "\x7f" for character in url):
        raise InvalidRequest("an image URL holds a backslash, blank or control character")
    try:
        parsed = ada_url.URL(url)
    except ValueError as error:
        raise InvalidRequest("an image URL is not a valid absolute URL") from error
    if parsed.protocol not in _DEFAULT_PORTS:
        raise InvalidRequest("an image URL must start with https:// or be a data: URL")
    if parsed.username or parsed.password:
        raise InvalidRequest("an image URL must not hold a user name or password")
    if not parsed.hostname:
        raise InvalidRequest("an image URL names no host")
    return Target(
        href=parsed.href,
        secure=parsed.protocol == "https:",
        host=parsed.hostname.strip("[]"),
        port=int(parsed.port) if parsed.port else _DEFAULT_PORTS[parsed.protocol],
        literal=_literal(parsed),
    )


def redirected(base: Target, location: str) -> Target:
    """Where an answer of ``base`` with header ``Location`` leads.

    Raises:
        InvalidRequest: as ``parse_target``.
    """
    try:
        return parse_target(ada_url.join_url(base.href, location))
    except ValueError as error:
        raise InvalidRequest("an image URL redirects to an invalid URL") from error


def _literal(parsed: ada_url.URL) -> Address | None:
    if parsed.host_type == ada_url.HostType.DEFAULT:
        return None
    return ipaddress.ip_address(parsed.hostname.strip("[]"))
