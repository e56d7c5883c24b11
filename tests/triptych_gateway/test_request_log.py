"""One line per request: what became of it, and which pods it was shown to."""

import logging

import httpx2 as httpx
import pytest
from triptych_contract.names import REQUEST_ID_HEADER, Tier

pytestmark = pytest.mark.torch

LOGGER = "triptych_gateway.api.chat"


async def ask_as_mine(made, body) -> None:
    async with httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        headers = {REQUEST_ID_HEADER: "mine"}
        await client.post("/v1/chat/completions", json=body, headers=headers)


@pytest.fixture
def lines(caplog):
    """The lines so far; the last request's comes after its reply, at the latest with the drain."""
    caplog.set_level(logging.INFO, LOGGER)
    return lambda: [one.getMessage() for one in caplog.records if one.name == LOGGER]


async def test_a_line_names_the_pods_in_the_order_of_the_work(stand, picture, ask, lines):
    async with stand() as made:
        await ask_as_mine(made, ask("What is it?", picture()))
        tiers = (Tier.ENCODER, Tier.PREFILL, Tier.DECODE)
        pods = [f"{tier}={made.one(tier).address}" for tier in tiers]
    (line,) = lines()
    assert line.startswith("request mine: ok after ")
    assert line.partition(" by ")[2].split() == pods


async def test_a_request_that_no_pod_saw_says_so(stand, ask, lines):
    async with stand() as made:
        await ask_as_mine(made, ask("hi") | {"model": "other"})
    (line,) = lines()
    assert line.startswith("request mine: NotFound after ")
    assert line.endswith(" by no pod")
