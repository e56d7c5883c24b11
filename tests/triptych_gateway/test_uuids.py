"""Pictures that clients name, and tenants that share nothing, through the whole gateway."""

import asyncio
import base64

import httpx2 as httpx
import pytest
from triptych_contract.config import MediaLimits
from triptych_contract.names import Tier

PATH = "/v1/chat/completions"

pytestmark = pytest.mark.torch


class CountingFetcher:
    """Answers every URL with ``content``."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.fetched = 0

    async def fetch(self, url: str) -> bytes:
        del url
        self.fetched += 1
        return self.content


def inline(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def about(url: str | None, uuid: str | None = None, **fields: object) -> dict[str, object]:
    part = {"type": "image_url", "image_url": {"url": url} if url else None}
    if uuid is not None:
        part["uuid"] = uuid
    question = {"type": "text", "text": "what?"}
    return {"model": "tiny", "messages": [{"role": "user", "content": [part, question]}], **fields}


def client_of(made, key: str = "", **headers: str) -> httpx.AsyncClient:
    if key:
        headers["authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(base_url=made.url, headers=headers, timeout=60)


async def test_a_picture_that_was_named_need_not_be_sent_again(stand, picture):
    async with stand() as made, client_of(made) as client:
        first = await client.post(PATH, json=about(inline(picture()), "cat"))
        second = await client.post(PATH, json=about(None, "cat"))
        assert (first.status_code, second.status_code) == (200, 200), second.text
        assert len(made.one(Tier.ENCODER).encoded) == 1
        keys = [request.keys for request in made.one(Tier.ENCODER).named("Lease")]
        assert keys[0] == keys[-1]


async def test_equal_bytes_by_url_data_url_and_name_are_one_entry(stand, picture):
    fetcher = CountingFetcher(picture())
    async with stand(fetcher=fetcher) as made, client_of(made) as client:
        for url, uuid in (
            (inline(picture()), None),
            ("https://a.example/x.png", None),
            (inline(picture()), "cat"),
            ("https://b.example/y.png", "cat"),
            (None, "cat"),
        ):
            assert (await client.post(PATH, json=about(url, uuid))).status_code == 200
        assert len(made.one(Tier.ENCODER).encoded) == 1
        assert made.gateway.cache.holdings()[0].entries == 1


async def test_a_named_url_is_fetched_once(stand, picture):
    fetcher = CountingFetcher(picture())
    async with stand(fetcher=fetcher) as made, client_of(made) as client:
        for _ in range(3):
            await client.post(PATH, json=about("https://a.example/x.png", "cat"))
        assert fetcher.fetched == 1
        await client.post(PATH, json=about("https://a.example/x.png"))
        assert fetcher.fetched == 2


async def test_another_picture_under_the_same_name_is_a_conflict(stand, picture):
    fetcher = CountingFetcher(picture(84, 84))
    async with stand(fetcher=fetcher) as made, client_of(made) as client:
        await client.post(PATH, json=about(inline(picture()), "cat"))
        for url in (inline(picture(84, 84)), "https://a.example/x.png"):
            answer = await client.post(PATH, json=about(url, "cat"))
            assert answer.status_code == 409
            assert answer.json()["error"]["code"] == "media_conflict"
        assert (await client.post(PATH, json=about(None, "cat"))).status_code == 200


async def test_of_two_pictures_that_come_at_once_under_one_name_one_is_a_conflict(stand, picture):
    async with stand() as made, client_of(made) as client:
        bodies = [about(inline(picture(side, side)), "cat") for side in (56, 84)]
        answers = await asyncio.gather(*(client.post(PATH, json=body) for body in bodies))
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        again = await asyncio.gather(*(client.post(PATH, json=body) for body in bodies))
        assert [one.status_code for one in again] == [one.status_code for one in answers]


async def test_a_name_alone_that_leads_nowhere_asks_for_the_picture(stand, picture):
    async with stand() as made, client_of(made) as client:
        await client.post(PATH, json=about(inline(picture()), "cat"))
        answer = await client.post(PATH, json=about(None, "dog"))
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["code"] == "media_not_found"
        assert "send the request again with its image_url" in error["message"]


async def test_what_cannot_be_decoded_takes_no_name(stand, picture):
    async with stand() as made, client_of(made) as client:
        broken = await client.post(PATH, json=about(inline(picture()[:60]), "cat"))
        assert broken.status_code == 400
        assert (await client.post(PATH, json=about(inline(picture()), "cat"))).status_code == 200


@pytest.mark.parametrize("content", [{"type": "image_url"}, {"type": "image_url", "uuid": ""}])
async def test_a_picture_needs_a_url_or_a_name(stand, content):
    async with stand() as made, client_of(made) as client:
        body = {"model": "tiny", "messages": [{"role": "user", "content": [content]}]}
        answer = await client.post(PATH, json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith("messages.0.content.0")


async def test_tenants_share_neither_names_nor_embeddings_nor_processed_pictures(stand, picture):
    async with stand() as made, client_of(made, "sk-a") as one, client_of(made, "sk-b") as two:
        body = about(inline(picture()), "cat")
        assert (await one.post(PATH, json=body)).status_code == 200
        assert (await two.post(PATH, json=about(None, "cat"))).status_code == 404
        assert (await two.post(PATH, json=body)).status_code == 200
        encoded = made.one(Tier.ENCODER).encoded
        assert len({header.key for header in encoded}) == len(encoded) == 2
        assert made.gateway.cache.holdings()[0].entries == 2
        assert (await one.post(PATH, json=body)).status_code == 200
        assert len(encoded) == 2


async def test_workers_are_told_whose_a_prompt_of_text_is(stand, ask):
    async with stand() as made, client_of(made, "sk-a") as one, client_of(made, "sk-b") as two:
        for client in (one, two, one):
            assert (await client.post(PATH, json=ask("what?"))).status_code == 200
        first, second, third = (
            request.tenant_salt for request in made.one(Tier.PREFILL).named("Prefill")
        )
    assert first == third != second
    assert {len(first), len(second)} == {32}


async def test_a_trusted_header_names_the_tenant(stand, picture):
    media = MediaLimits(tenant_header="x-tenant")
    async with stand(media=media) as made, client_of(made, "sk-a") as client:
        body = about(inline(picture()))
        for name in ("acme", "other", "acme"):
            await client.post(PATH, json=body, headers={"x-tenant": name})
        assert len(made.one(Tier.ENCODER).encoded) == 2
