"""``triptych caches NAME`` and ``triptych flush NAME``: what is held of which encoder's making."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from triptych_contract.errors import DeadlineExceeded
from triptych_contract.names import Port, Tier

from triptych_operator.api.status import CachesStatus
from triptych_operator.caches.coherence import ORDER
from triptych_operator.caches.holdings import Holding, holdings
from triptych_operator.cli.resource import Found, Resource, add_resource_arguments, find, opened
from triptych_operator.cli.table import aligned
from triptych_operator.desired import naming

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_POLL_SECONDS: Final = 0.5


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds both commands."""
    listing = commands.add_parser(
        "caches",
        help="what the pods of a service hold in their caches, by encoder",
        description="Lists every pod that has a cache, and how much it holds of which encoder's "
        "making. Reads the pods' metrics through the API server (needs the right to get "
        "pods/proxy).",
    )
    add_resource_arguments(listing)
    listing.set_defaults(run=run_caches)
    flush = commands.add_parser(
        "flush",
        help="have the caches of a service drop what other encoders made",
        description="Asks the operator for a flush, and waits until every holder has followed.",
    )
    add_resource_arguments(flush)
    flush.add_argument(
        "--timeout", type=float, default=60.0, help="seconds to wait (default: %(default)s)"
    )
    flush.set_defaults(run=run_flush)


def run_caches(options: argparse.Namespace) -> int:
    """Prints the table; 0."""
    found = find(options)
    held = asyncio.run(_held(options))
    sys.stdout.write("\n".join(lines(found, held)) + "\n")
    return 0


def run_flush(options: argparse.Namespace) -> int:
    """Asks, waits, tells; 0.

    Raises:
        DeadlineExceeded: not every holder has followed in time; says what the status says.
    """
    token = uuid.uuid4().hex
    asyncio.run(_annotate(options, token))
    deadline = time.monotonic() + options.timeout
    while True:
        caches = find(options).status.caches or CachesStatus()
        if caches.flush_token == token:
            break
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"asked for, and not done within {options.timeout:g} s; it goes on by itself: "
                f"`triptych status {options.name} -n {options.namespace}` says what it waits for"
            )
        time.sleep(_POLL_SECONDS)
    sys.stdout.write(
        f"epoch {caches.epoch}: {caches.holders} holders hold encoder "
        f"{caches.fingerprint[:12]} alone, {caches.bytes_freed} bytes freed\n"
    )
    return 0


def lines(found: Found, held: Sequence[Holding]) -> Iterator[str]:
    """What is held, as text."""
    caches = found.status.caches or CachesStatus()
    flushed = caches.last_flush_time or "never"
    yield (
        f"{found.namespace}/{found.name}   encoder {caches.fingerprint[:12] or 'unknown'}   epoch "
        f"{caches.epoch}   flushed {flushed}"
    )
    yield ""
    rows = [("POD", "TIER", "CACHE", "ENCODER", "BYTES", "")]
    for one in held:
        encoder = one.fingerprint[:12] or "any"  # of text alone
        stale = "other" if caches.fingerprint and _differs(one, caches.fingerprint) else ""
        rows.append((one.pod, one.tier, one.cache, encoder, str(one.size_bytes), stale))
    yield from aligned(rows)


def _differs(held: Holding, fingerprint: str) -> bool:
    return held.fingerprint not in ("", fingerprint)


async def _held(options: argparse.Namespace) -> list[Holding]:
    async with opened(options) as resource:
        pods = [
            (body["metadata"]["name"], body["metadata"]["labels"][naming.COMPONENT])
            for body in await resource.pods()
        ]
        order = {tier.value: place for place, tier in enumerate(ORDER)}
        asked = sorted(
            (pod for pod in pods if pod[1] in order), key=lambda pod: (order[pod[1]], pod[0])
        )
        pages = await asyncio.gather(*(_page(resource, name) for name, _ in asked))
    return [
        one
        for (name, tier), page in zip(asked, pages, strict=True)
        for one in holdings(name, Tier(tier), page)
    ]


async def _page(resource: Resource, pod: str) -> str:
    return await resource.page(pod, Port.METRICS, "metrics")


async def _annotate(options: argparse.Namespace, token: str) -> None:
    async with opened(options) as resource:
        await resource.annotate(naming.FLUSH, token)
