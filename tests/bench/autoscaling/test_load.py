from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from bench.autoscaling.load import Phase, long_answer, long_prompt, picture_question, run

TOKEN = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'


async def served(*lines: bytes, status: int = 200) -> tuple[web.AppRunner, str]:
    """A server that answers every request with these lines, and its URL."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}/v1"


async def test_requests_leave_at_their_rate_whatever_the_answers_do() -> None:
    runner, url = await served(TOKEN, b"data: [DONE]\n\n")
    try:
        phases = [Phase("quiet", 0.1), Phase("load", 0.4, 10.0, long_answer)]
        times, outcomes = await run(url, phases)
    finally:
        await runner.cleanup()
    began = times[0]
    assert times == [began, began + 0.1, began + 0.1 + 0.4]
    assert [one.error for one in outcomes] == [""] * 4
    assert all(0 < one.first <= one.total for one in outcomes)
    leaving = sorted(one.at for one in outcomes)
    assert all(at >= 0.1 + 0.1 * index for index, at in enumerate(leaving))


async def test_a_quiet_ends_early_once_it_is_over_and_the_next_phase_begins() -> None:
    told: list[float] = []

    def at_the_second_look(began: float) -> bool:
        told.append(began)
        return len(told) == 2

    phases = [Phase("quiet", 60.0, over=at_the_second_look), Phase("after", 0.1)]
    (began, quiet_end, end), _ = await run("http://127.0.0.1:9/v1", phases)
    assert 0.5 <= quiet_end - began < 30.0
    assert end == quiet_end + 0.1
    assert told == [began, began]


async def test_a_quiet_that_is_never_over_ends_in_its_time() -> None:
    (began, end), _ = await run(
        "http://127.0.0.1:9/v1", [Phase("quiet", 0.1, over=lambda _: False)]
    )
    assert end == began + 0.1


async def test_so_many_at_a_time_follow_each_other_until_the_phase_ends() -> None:
    runner, url = await served(TOKEN, b"data: [DONE]\n\n")
    try:
        _, outcomes = await run(url, [Phase("load", 1.0, make=long_answer, at_once=3)])
    finally:
        await runner.cleanup()
    assert [one.error for one in outcomes] == [""] * len(outcomes)
    assert len(outcomes) > 3
    assert max(one.at for one in outcomes) < 1.0


@pytest.mark.parametrize(
    ("lines", "status", "error"),
    [
        ([b'{"error": {"message": "full"}}'], 429, '429: {"error": {"message": "full"}}'),
        ([TOKEN, b'data: {"error": {}}\n\n'], 200, '200: data: {"error": {}}'),
        ([TOKEN], 200, "the stream ended before its end"),
        ([b"data: [DONE]\n\n"], 200, "the stream ended before its end"),
    ],
)
async def test_whatever_is_no_whole_answer_is_an_error(
    lines: list[bytes], status: int, error: str
) -> None:
    runner, url = await served(*lines, status=status)
    try:
        _, [outcome] = await run(url, [Phase("load", 0.1, 10.0, long_answer)])
    finally:
        await runner.cleanup()
    assert outcome.error == error


async def test_a_server_that_is_not_there_is_an_error_of_the_request() -> None:
    runner, url = await served()
    await runner.cleanup()
    _, [outcome] = await asyncio.wait_for(run(url, [Phase("x", 0.1, 10.0, long_answer)]), 20)
    assert outcome.error.startswith("ClientConnectorError")


@pytest.mark.parametrize("make", [picture_question, long_prompt, long_answer])
def test_no_two_requests_are_alike_and_each_can_be_made_again(make: object) -> None:
    assert callable(make)
    assert make(1) == make(1) != make(2)
