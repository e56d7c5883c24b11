import asyncio

import httpx2 as httpx
import openai
import pytest
from triptych_contract.errors import Unavailable
from triptych_contract.names import FINGERPRINT_HEADER, Tier, Topology

pytestmark = pytest.mark.torch

TOPOLOGIES = list(Topology)


def client_of(made) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{made.url}/v1", api_key="none")


@pytest.mark.parametrize("topology", TOPOLOGIES)
async def test_the_openai_client_gets_answers_about_pictures(stand, topology, picture, ask):
    async with stand(topology) as made, client_of(made) as client:
        body = ask("What is it?", picture(), max_tokens=16)
        answer = await client.chat.completions.create(**body)
        assert answer.choices[0].message.content == "It is red."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.completion_tokens == 4
        assert answer.usage.prompt_tokens > 10
        assert made.world.leases == 0


async def test_the_openai_client_is_told_what_was_not_computed_again(stand, ask):
    async with stand() as made, client_of(made) as client:
        made.one(Tier.PREFILL).prefix_tokens = 8
        usage = (await client.chat.completions.create(**ask("hi"))).usage
        assert usage.prompt_tokens_details.cached_tokens == 8 < usage.prompt_tokens
        made.one(Tier.DECODE).script["Decode"].append(Unavailable("come back"))
        usage = (await client.chat.completions.create(**ask("hi"))).usage
        assert len(made.one(Tier.PREFILL).named("Prefill")) == 3
        assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens


async def test_the_openai_client_streams_with_usage(stand, ask):
    async with stand() as made, client_of(made) as client:
        stream = await client.chat.completions.create(
            **ask("hi"), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "It is red."
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_the_synchronous_openai_client_gets_logprobs(stand, ask):
    def call(url: str):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            return client.chat.completions.create(**ask("hi"), logprobs=True, top_logprobs=1)

    async with stand() as made:
        answer = await asyncio.to_thread(call, made.url)
    rows = answer.choices[0].logprobs.content
    assert [row.token for row in rows] == ["It", " is", " red", "."]
    assert rows[1].bytes == list(b" is")
    assert rows[0].top_logprobs[0].logprob == -0.5


async def test_models_are_listed_and_found_by_name(stand):
    async with stand() as made, client_of(made) as client:
        assert [one.id async for one in client.models.list()] == ["tiny"]
        assert (await client.models.retrieve("tiny")).id == "tiny"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")


async def test_a_picture_is_sent_once_and_then_leased(stand, picture, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        body = ask(picture(), "what?")
        first = await client.post(
            "/v1/chat/completions", json=body, headers={"x-triptych-times": "1"}
        )
        second = await client.post(
            "/v1/chat/completions", json=body, headers={"x-triptych-times": "1"}
        )
        encoder = made.one(Tier.ENCODER)
        assert len(encoder.encoded) == 1
        assert encoder.received == 4 * 4 * 588 * 4  # 60 x 60 -> 56 x 56 -> 16 patches, float32
        assert first.headers[FINGERPRINT_HEADER] == encoder.fingerprint
        assert set(first.json()["triptych"]["times"]) >= {"media_decode", "processor", "encode"}
        assert second.json()["triptych"]["counts"]["encoder_cache_hits"] == 1
        assert second.json()["triptych"]["counts"]["processor_cache_hits"] == 1
        assert made.world.leases == 0


async def test_a_picture_that_comes_twice_is_encoded_once_and_leased_twice(stand, picture, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        url = picture()
        answer = await client.post("/v1/chat/completions", json=ask(url, "and", url))
        assert answer.status_code == 200, answer.text
        (request,) = made.one(Tier.PREFILL).named("Prefill")
        handles = [item.embedding.lease_id for item in request.prompt.media]
        assert len(set(handles)) == 2
        assert len(made.one(Tier.ENCODER).encoded) == 1


async def test_many_requests_for_one_new_picture_encode_it_once(stand, picture, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        made.one(Tier.ENCODER).encode_seconds = 0.2
        body = ask(picture(70, 70), "what?")
        answers = await asyncio.gather(
            *(client.post("/v1/chat/completions", json=body) for _ in range(8))
        )
        assert [answer.status_code for answer in answers] == [200] * 8
        assert len(made.one(Tier.ENCODER).encoded) == 1
        assert made.world.leases == 0


async def test_text_needs_no_encoder(stand, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        answer = await client.post("/v1/chat/completions", json=ask("hello"))
        assert answer.status_code == 200
        assert FINGERPRINT_HEADER not in answer.headers
        assert made.one(Tier.ENCODER).named("Lease") == []


async def test_a_request_id_comes_back_and_goes_on(stand, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        answer = await client.post(
            "/v1/chat/completions", json=ask("hello"), headers={"x-request-id": "mine-1"}
        )
        assert answer.headers["x-request-id"] == "mine-1"
        assert made.one(Tier.PREFILL).named("Prefill")[0].request_id == "mine-1"


async def test_sampling_reaches_the_workers_as_asked(stand, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        await client.post(
            "/v1/chat/completions",
            json=ask(
                "hi", temperature=0, top_p=0.5, top_k=7, seed=-1, stop="x", max_completion_tokens=2,
                min_tokens=1, ignore_eos=True,
            ),
        )  # fmt: skip
        sampling = made.one(Tier.PREFILL).named("Prefill")[0].sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0, 0.5, 7)
        assert sampling.seed == 2**64 - 1
        assert list(sampling.stop) == ["x"]
        assert (sampling.max_tokens, sampling.min_tokens, sampling.ignore_eos) == (2, 1, True)


async def test_without_max_tokens_an_answer_may_fill_the_context(stand, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        await client.post("/v1/chat/completions", json=ask("hi"))
        request = made.one(Tier.PREFILL).named("Prefill")[0]
        assert request.sampling.max_tokens == 4096 - len(request.prompt.token_ids)


async def test_metrics_count_requests_and_first_tokens(stand, picture, ask):
    async with stand() as made, httpx.AsyncClient(base_url=made.url, timeout=60) as client:
        await client.post("/v1/chat/completions", json=ask("hi", picture()))
        await client.post("/v1/chat/completions", json=ask("hi", model="other"))
        text = (await client.get("/metrics")).text
    assert 'triptych_requests_total{outcome="ok"} 1.0' in text
    assert 'triptych_requests_total{outcome="NotFound"} 1.0' in text
    assert 'triptych_time_to_first_token_seconds_count{modality="multimodal"} 1.0' in text
    assert 'triptych_stage_duration_seconds_count{stage="media_decode"} 1.0' in text
    assert 'triptych_cache_misses_total{cache="processor"}' in text
