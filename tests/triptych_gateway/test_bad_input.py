import io
import json
import struct
import zlib

import httpx2 as httpx
import pytest
from cluster.waiting import eventually
from PIL import Image
from triptych_contract.config import MediaLimits
from triptych_contract.names import Tier

pytestmark = pytest.mark.torch

PATH = "/v1/chat/completions"


def huge_png(width: int, height: int) -> bytes:
    """A PNG of any size whose compressed rows take next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(bytes(10**6)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + rows + chunk(b"IEND", b"")


async def still_serves(client: httpx.AsyncClient, ask, content: bytes) -> None:
    answer = await client.post(PATH, json=ask("what?", content))
    assert answer.status_code == 200, answer.text


async def test_each_bad_picture_has_its_own_error_and_leaves_everything_serving(
    stand, picture, ask
):
    good = picture(64, 64)
    noise = io.BytesIO()
    Image.effect_noise((64, 64), 90).save(noise, "PNG")
    cases = {
        "a truncated PNG": (noise.getvalue()[:-1500], 400, "damaged or truncated PNG"),
        "a text file named .png": (b"this is text, not a picture", 400, "none of JPEG"),
        "an empty file": (b"", 400, "empty"),
        "a 40,000 x 40,000 picture": (huge_png(40_000, 40_000), 413, "40000 x 40000"),
        "rows that do not fill the picture": (huge_png(3000, 3000), 400, "damaged or truncated"),
        "a picture of one row": (picture(600, 1), 400, "600 x 1"),
        "rubbish behind a JPEG's first bytes": (b"\xff\xd8\xff" + bytes(500), 400, "JPEG"),
    }
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        for name, (content, status, message) in cases.items():
            answer = await client.post(PATH, json=ask("what?", content))
            error = answer.json()["error"]
            assert (name, answer.status_code) == (name, status)
            assert message in error["message"], name
            assert error["type"] == "invalid_request_error"
        assert made.world.leases == 0
        await still_serves(client, ask, good)


async def test_every_accepted_format_and_orientation_is_read(stand, picture, ask):
    exif = Image.Exif()
    exif[0x0112] = 6
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        for kind in ("JPEG", "PNG", "WEBP", "GIF"):
            await still_serves(client, ask, picture(112, 56, kind))
        await still_serves(client, ask, picture(112, 56, "JPEG", exif=exif))
        grids = [tuple(header.grid) for header in made.one(Tier.ENCODER).encoded]
    assert grids == [(1, 4, 8)] * 4 + [(1, 8, 4)]


async def test_100_images_are_refused_before_any_is_decoded(stand, picture, ask):
    urls = [picture(60 + index, 60) for index in range(100)]
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        answer = await client.post(PATH, json=ask(*urls))
        assert answer.status_code == 400
        assert "100 images in one request; the limit is 16" in answer.text
        assert made.gateway.cache.misses == 0


@pytest.mark.parametrize("announced", [True, False])
async def test_a_300_mb_body_is_refused_while_it_is_read(stand, announced, ask):
    sent = 0

    async def body():
        nonlocal sent
        for _ in range(300):
            sent += 1
            yield bytes(10**6)

    headers = {"content-length": str(300 * 10**6)} if announced else {}
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        try:
            answer = await client.post(PATH, content=body(), headers=headers)
            assert answer.status_code == 413
            assert "larger than 67108864 bytes" in answer.text
        except httpx.TransportError:
            assert sent < 300  # the connection was closed under the client's feet
        assert sent < 200
        assert (await client.post(PATH, json=ask("hi"))).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "parameter"),
    [
        (b"{not json", 400, None),
        (b'{"model": "tiny", "messages": []}', 400, "messages"),
        (b'{"model": "tiny", "messages": [{"role": "robot", "content": "x"}]}', 400, "messages.0"),
    ],
)
async def test_a_malformed_body_is_answered_in_openais_shape(stand, body, status, parameter):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        answer = await client.post(PATH, content=body)
        assert answer.status_code == status
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["param"] == parameter


async def test_other_malformed_requests_have_their_status(stand, ask):
    nan = json.dumps(ask("hi", temperature=float("nan")))
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        assert (await client.post(PATH, content=nan)).status_code == 400
        assert (await client.post(PATH, json=ask("hi", max_tokens=-1))).status_code == 400
        assert (await client.post(PATH, json=ask("hi", colour="red"))).status_code == 400
        assert (await client.post(PATH, json=ask("hi", model="gpt-9"))).status_code == 404
        assert (await client.get(PATH)).status_code == 405
        assert (await client.get("/v1/embeddings")).json()["error"]["code"] == "not_found"


async def test_a_prompt_longer_than_the_context_is_told_with_its_numbers(stand, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        answer = await client.post(PATH, json=ask("colour " * 5000))
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert "context of 4096" in answer.json()["error"]["message"]
        answer = await client.post(PATH, json=ask("hi", max_tokens=5000))
        assert "may have 5000" in answer.json()["error"]["message"]


async def test_a_private_url_is_refused(stand, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        answer = await client.post(PATH, json=ask("what?", f"{made.url}/metrics"))
        assert answer.status_code == 400
        assert "not public" in answer.json()["error"]["message"]


async def test_a_picture_that_takes_too_long_is_the_only_one_to_fail(stand, picture, ask):
    slow = io.BytesIO()
    Image.effect_noise((5000, 5000), 90).save(slow, "PNG", compress_level=1)
    limits = MediaLimits(decode_seconds=0.05, decode_processes=1, max_bytes=60 * 2**20)
    async with (
        stand(media=limits) as made,
        httpx.AsyncClient(base_url=made.url, timeout=60) as client,
    ):
        answer = await client.post(PATH, json=ask("what?", slow.getvalue()))
        assert answer.status_code == 400
        assert "longer than 0.05 seconds" in answer.text

        async def serves() -> bool:
            """The pool starts another process, which takes a while."""
            again = await client.post(PATH, json=ask("what?", picture()))
            return again.status_code == 200

        await eventually(serves, "the next picture", seconds=60)
