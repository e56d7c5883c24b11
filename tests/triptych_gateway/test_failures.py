import asyncio

import httpx2 as httpx
import pytest
from cluster.waiting import eventually
from prometheus_client import generate_latest
from triptych_contract.errors import (
    FingerprintMismatch,
    InvalidRequest,
    LeaseExpired,
    Overloaded,
    TransferCorrupted,
    Unavailable,
)
from triptych_contract.names import Metric, Tier, Topology

pytestmark = pytest.mark.torch

PATH = "/v1/chat/completions"
NO_ENCODER = {Tier.ENCODER: 0}
TWO_ENCODERS = {Tier.ENCODER: 2}
TWO_OF_ALL = {Tier.ENCODER: 2, Tier.PREFILL: 2, Tier.DECODE: 2}


def client_of(made) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=made.url, timeout=60)


async def settled(condition, of: asyncio.Task | None = None) -> None:
    """Once ``condition`` holds; of a request that goes on, where it is given."""
    await eventually(condition, "what a request leaves", seconds=60, of=of)


@pytest.mark.parametrize("step", ["die", Overloaded("full"), Unavailable("draining")])
@pytest.mark.parametrize("method", ["Lease", "Encode"])
async def test_when_an_encoder_fails_another_one_is_asked(stand, picture, ask, method, step):
    async with stand(counts=TWO_ENCODERS) as made, client_of(made) as client:
        first = made.workers[Tier.ENCODER][0]
        first.script[method].append(step)
        content = 0
        while not first.named(method):  # until a picture belongs to the failing one
            content += 1
            answer = await client.post(PATH, json=ask("what?", picture(60 + content, 60)))
            assert answer.status_code == 200, answer.text
        assert made.world.leases == 0


async def test_without_an_encoder_pictures_get_a_clear_503_and_text_goes_on(stand, picture, ask):
    async with stand() as made, client_of(made) as client:
        await made.one(Tier.ENCODER).stop()
        answer = await client.post(PATH, json=ask("what?", picture()))
        assert answer.status_code == 503
        assert "requests without images still work" in answer.json()["error"]["message"]
        assert int(answer.headers["retry-after"]) >= 1
        assert (await client.post(PATH, json=ask("hello"))).status_code == 200
        # Else nothing would reach this gateway any more, and no text would go on.
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


async def test_a_gateway_begins_without_encoders_that_may_rest_and_tells_who_waits(
    stand, picture, ask
):
    options = {"on_encoder_loss": "Queue", "queue_seconds": 20, "encoder_rests": True}
    async with stand(counts=NO_ENCODER, **options) as made, client_of(made) as client:
        assert waiting_for_an_encoder(made) == 0
        asked = asyncio.create_task(client.post(PATH, json=ask("what?", picture())))
        await settled(lambda: waiting_for_an_encoder(made) == 1, asked)
        asked.cancel()
        await settled(lambda: waiting_for_an_encoder(made) == 0)


def waiting_for_an_encoder(made) -> float:
    return made.gateway.metrics.registry.get_sample_value(Metric.WITHOUT_ENCODER)


async def test_an_encoder_that_comes_back_serves_again(stand, picture, ask):
    async with stand(on_encoder_loss="Queue", queue_seconds=20) as made, client_of(made) as client:
        encoder = made.one(Tier.ENCODER)
        with encoder.keeping_its_port() as port:
            await encoder.stop()
            waiting = asyncio.create_task(client.post(PATH, json=ask("what?", picture())))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            await encoder.start(port)
            assert (await waiting).status_code == 200
        await encoder.stop()


async def test_encode_inline_uses_a_prefill_that_can_encode(stand, picture, ask):
    options = {"on_encoder_loss": "EncodeInline", "can_encode": (Tier.PREFILL,)}
    async with stand(**options) as made, client_of(made) as client:
        await made.one(Tier.ENCODER).stop()
        answer = await client.post(PATH, json=ask("what?", picture()))
        assert answer.status_code == 200, answer.text
        assert len(made.one(Tier.PREFILL).encoded) == 1


@pytest.mark.parametrize(
    "step", [LeaseExpired("gone"), FingerprintMismatch("other"), Unavailable("no peer")]
)
async def test_a_stale_handle_is_made_anew_once(stand, picture, ask, step):
    async with stand() as made, client_of(made) as client:
        made.one(Tier.PREFILL).script["Prefill"].append(step)
        answer = await client.post(PATH, json=ask("what?", picture()))
        assert answer.status_code == 200
        made.one(Tier.PREFILL).script["Prefill"].extend([step, step])
        answer = await client.post(PATH, json=ask("what?", picture()))
        assert answer.status_code == 503
        await settled(lambda: made.world.leases == 0)


async def test_a_corrupted_embedding_is_looked_at_before_it_is_leased_again(stand, picture, ask):
    async with stand() as made, client_of(made) as client:
        made.one(Tier.PREFILL).script["Prefill"].append(TransferCorrupted("checksum"))
        answer = await client.post(PATH, json=ask("what?", picture()))
        assert answer.status_code == 200
        leased = made.one(Tier.ENCODER).named("Lease")
        assert [request.verify for request in leased] == [False, True]


async def test_who_misses_an_embedding_is_told_who_may_have_it(stand, picture, ask):
    async with stand(counts=TWO_ENCODERS) as made, client_of(made) as client:
        for side in range(60, 140, 20):
            await client.post(PATH, json=ask("what?", picture(side, side)))
        asked = [(it.address, it.named("Lease")) for it in made.workers[Tier.ENCODER]]
        addresses = {address for address, _ in asked}
        for address, requests in asked:
            assert {addresses - {address} == {request.peer} for request in requests} <= {True}
        assert sum(len(requests) for _, requests in asked) == 4


async def test_an_only_encoder_has_nobody_to_ask(stand, picture, ask):
    async with stand() as made, client_of(made) as client:
        await client.post(PATH, json=ask("what?", picture()))
        assert [request.peer for request in made.one(Tier.ENCODER).named("Lease")] == [""]


async def test_a_prefill_that_dies_is_replaced(stand, picture, ask):
    async with stand(counts=TWO_OF_ALL) as made, client_of(made) as client:
        one, _ = made.workers[Tier.PREFILL]
        one.script["Prefill"].append("die")
        for index in range(8):
            answer = await client.post(PATH, json=ask(str(index), picture()))
            assert answer.status_code == 200, answer.text
            if one.named("Prefill"):
                break
        assert one.named("Prefill")


async def test_a_decode_that_fails_before_its_first_token_is_replaced(stand, ask, events):
    async with stand(counts=TWO_OF_ALL) as made, client_of(made) as client:
        one, _ = made.workers[Tier.DECODE]
        one.fail_after = 0
        for index in range(8):
            answer = await client.post(PATH, json=ask(str(index), stream=True))
            chunks = events(answer.text)
            text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
            assert text == "It is red."
            if one.named("Decode"):
                break
        assert one.named("Decode")
        await settled(lambda: made.world.leases == 0)


async def test_a_decode_that_fails_later_ends_the_stream_with_an_error(stand, ask, events):
    async with stand() as made, client_of(made) as client:
        made.one(Tier.DECODE).fail_after = 1
        answer = await client.post(PATH, json=ask("hi", stream=True))
        chunks = events(answer.text)
        assert chunks[-1]["error"]["code"] == "unavailable"
        assert "[DONE]" not in answer.text
        whole = await client.post(PATH, json=ask("hi"))
        assert whole.status_code == 503


async def test_a_request_that_kills_pods_is_not_shown_to_all_of_them(stand, ask):
    counts = {Tier.ENCODER: 1, Tier.PREFILL: 4, Tier.DECODE: 1}
    async with stand(counts=counts) as made, client_of(made) as client:
        for worker in made.workers[Tier.PREFILL]:
            worker.script["Prefill"].append("die")
        answer = await client.post(PATH, json=ask("poison"))
        assert answer.status_code == 503
        assert "not tried again" in answer.json()["error"]["message"]
        touched = [worker for worker in made.workers[Tier.PREFILL] if worker.named("Prefill")]
        assert len(touched) == 2


async def test_a_terminal_error_is_not_tried_again(stand, ask):
    async with stand(counts=TWO_OF_ALL) as made, client_of(made) as client:
        for worker in made.workers[Tier.PREFILL]:
            worker.script["Prefill"].append(InvalidRequest("bad prompt"))
        answer = await client.post(PATH, json=ask("hi"))
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "bad prompt")
        assert sum(len(worker.named("Prefill")) for worker in made.workers[Tier.PREFILL]) == 1


async def test_when_all_are_overloaded_the_client_is_told_when_to_come_back(stand, ask):
    async with stand(counts=TWO_OF_ALL) as made, client_of(made) as client:
        for worker in made.workers[Tier.PREFILL]:
            worker.script["Prefill"].append(Overloaded("full", retry_after=2.5))
        answer = await client.post(PATH, json=ask("hi"))
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "3"


async def test_more_requests_than_allowed_get_429(stand, ask):
    async with stand(max_concurrent=1) as made, client_of(made) as client:
        made.one(Tier.DECODE).held_up = end = asyncio.Event()
        running = asyncio.create_task(client.post(PATH, json=ask("one")))
        await settled(lambda: made.one(Tier.DECODE).running, running)
        refused = await client.post(PATH, json=ask("two"))
        assert refused.status_code == 429
        end.set()
        assert (await running).status_code == 200


async def test_time_runs_out_with_504(stand, ask):
    async with stand(request_seconds=1.0) as made, client_of(made) as client:
        made.one(Tier.PREFILL).script["Prefill"].append("hang")
        answer = await client.post(PATH, json=ask("hi"))
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline_exceeded"


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_every_tier(stand, picture, ask, topology, stream):
    async with stand(topology) as made, client_of(made) as client:
        language = Tier.DECODE if topology is Topology.FULL_SPLIT else Tier.FUSED
        worker = made.one(language)
        worker.token_seconds = 30.0
        body = ask("what?", picture(), stream=stream)
        request = asyncio.create_task(client.post(PATH, json=body))
        await settled(lambda: worker.running, request)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await settled(lambda: not worker.running)
        await settled(lambda: made.world.leases == 0)
        await settled(lambda: "cancelled" in _metrics(made))


async def test_a_client_that_leaves_during_prefill_gives_its_leases_back(stand, picture, ask):
    async with stand() as made, client_of(made) as client:
        made.one(Tier.PREFILL).script["Prefill"].append("hang")
        request = asyncio.create_task(client.post(PATH, json=ask("what?", picture())))
        await settled(lambda: made.one(Tier.PREFILL).named("Prefill"), request)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await settled(lambda: made.world.leases == 0)
        assert len(made.one(Tier.ENCODER).released) == 1


def _metrics(made) -> str:
    return generate_latest(made.gateway.metrics.registry).decode()
