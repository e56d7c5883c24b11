"""Texts and numbers that are right but for a character or two are judged alike by both sides.

TRIPTYCH_SWEEP=full tries 3,000 of them; otherwise some are tried.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cluster.kubectl import Cluster
from control_plane import verdicts
from control_plane.faults.sweep import FULL
from control_plane.spec_places import Path, resource_with
from control_plane.verdicts import Server, refused_here

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = 3000 if FULL else 200
ENCODER = ("spec", "tiers", "encoder")
RIGHT: dict[Path, tuple[str | int, ...]] = {
    ("metadata", "name"): ("a", "shapes-1", "a" * 40),
    ("spec", "model", "source"): (
        "builtin://a-b", "hf://A.b/C_d", "pvc://a.b-c/d/e", "pvc://a/_x", f"pvc://{'a' * 253}/b",
    ),
    ("spec", "model", "downloadClaim"): ("a", "a-b.c", "0a"),
    ("spec", "engine", "image"): ("a", f"h.x:5000/a/b:1.2@sha256:{'0' * 64}", "a__b/c:D"),
    ("spec", "transfer", "lease"): ("1s", "1h2m3s4ms", "05m", "0h1ms"),
    ("spec", "transfer", "landing"): ("1", "1Gi", "10k", "999999Ti", 5),
    ("spec", "degraded", "queueTimeout"): ("0s", "1h", "90m", "00h00m"),
    ("spec", "media", "tenants", "header"): ("", "X-Tenant", "a", "a--b-0"),
    ("spec", "media", "urlPolicy", "allowNetworks", "[]"): (
        "10.0.0.0/8", "fd00::/8", "::/0", "1.2.3.4/32", "::ffff:0:0/96", "::1.2.3.0/120",
        "2001:0db8::/32",
    ),
    (*ENCODER, "cache", "capacity"): ("0", "1Gi", "10k", "999999Ti", "007Mi", 5, 0),
    (*ENCODER, "resources", "limits", "{}"): (
        "0", "0.5", "1e3", "1.5Gi", "100m", "1n", "1E-2", "00.100k", 3,
    ),
    (*ENCODER, "template", "metadata", "labels", "{}"): ("", "a", "a.b-c_d", "A0"),
    (*ENCODER, "autoscaling", "metrics", "[]", "target"): ("1", "70", "2k", "1M", "100", 3),
    (*ENCODER, "autoscaling", "metrics", "[]", "external", "name"): ("a", "_:a.b|c-1"),
    (*ENCODER, "autoscaling", "scaleToZeroAfter"): ("1ms", "10m", "0h1s"),
    ("spec", "balance", "encoderPerPrefill", "max"): ("1", "500m", "0.5", "1k", 3),
}  # fmt: skip
CHARACTERS = "0123456789abcxyzABCgGiKkMmnuTEe./:-_@ +%\né٣"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(cluster: Cluster) -> AsyncIterator[Server]:
    async with verdicts.server(cluster.kubeconfig) as running:
        yield running


async def test_near_misses_are_judged_alike(server: Server) -> None:
    chance = random.Random(20)
    for _ in range(COUNT):
        path = chance.choice(list(RIGHT))
        value = nearly(chance, chance.choice(RIGHT[path]))
        body = resource_with(path, value)
        theirs, ours = await server.refuses(body), refused_here(body)
        assert bool(theirs) == bool(ours), (path, value, theirs, ours)


def nearly(chance: random.Random, value: str | int) -> str | int | float:
    """``value``, changed a little or not at all."""
    if isinstance(value, int):
        return chance.choice([value, value + 1, -value, value * 10 ** chance.randint(0, 18), 0.5])
    text = list(value)
    for _ in range(chance.randint(0, 2)):
        place = chance.randint(0, len(text))
        text[place : place + chance.randint(0, 1)] = chance.choice(["", *CHARACTERS])
    return "".join(text)
