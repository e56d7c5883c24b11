"""Closed-loop load on a server of the OpenAI API: so many requests in flight, streamed answers.

One process, one event loop, aiohttp: it takes a few percent of a core, which matters when client
and servers share two. docs/benchmarks.md has the comparison with AIPerf that led to it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from bench.pictures import data_url
from bench.samples import Sample

QUESTION = "what is in this picture"
REQUEST_SECONDS = 300.0


class WrongAnswer(Exception):
    """A server did not do what it was asked; the figures would be worth nothing."""


@dataclass(frozen=True, slots=True)
class Api:
    """How one server is spoken to."""

    url: str
    model: str
    extra: Mapping[str, object] = field(default_factory=dict)  # fields that only it knows
    headers: Mapping[str, str] = field(default_factory=dict)


async def load(
    api: Api, seeds: Sequence[int], concurrency: int, tokens: int, question: str = QUESTION
) -> list[Sample]:
    """One request per picture, ``concurrency`` of them at a time, in the order of ``seeds``.

    Raises (in an ExceptionGroup):
        WrongAnswer: an error, or another number of tokens than asked for.
    """
    return await send(api, bodies(api, seeds, tokens, question), concurrency, tokens)


def bodies(
    api: Api, seeds: Sequence[int], tokens: int, question: str = QUESTION
) -> list[tuple[int, bytes]]:
    """Requests with their seeds. A picture takes 50 ms to make, which no clock of a server's should
    see."""
    return [(seed, json.dumps(_body(api, seed, tokens, question)).encode()) for seed in seeds]


async def send(
    api: Api, requests: Sequence[tuple[int, bytes]], concurrency: int, tokens: int
) -> list[Sample]:
    """As ``load``, with requests that are made already."""
    waiting = iter(requests)
    samples: list[Sample] = []
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=concurrency),
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
    ) as session:

        async def ask_one_after_the_other() -> None:
            for seed, body in waiting:
                samples.append(await _ask(session, api, seed, body, tokens))

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(ask_one_after_the_other())
    return samples


def _body(api: Api, seed: int, tokens: int, question: str) -> dict[str, object]:
    image = {"type": "image_url", "image_url": {"url": data_url(seed)}}
    content = [image, {"type": "text", "text": question}]
    return {
        "model": api.model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        **api.extra,
    }


async def _ask(
    session: aiohttp.ClientSession, api: Api, seed: int, body: bytes, tokens: int
) -> Sample:
    headers = {"content-type": "application/json", **api.headers}
    began = time.perf_counter()
    first = last = 0.0
    text, counted = [], 0
    stages: dict[str, float] = {}
    async with session.post(f"{api.url}/v1/chat/completions", data=body, headers=headers) as answer:
        if answer.status != 200:
            raise WrongAnswer(f"{api.url} answered {answer.status}: {await answer.text()}")
        async for event in _events(answer):
            words = _words(event)
            if words:
                last = time.perf_counter() - began
                first = first or last
                text.append(words)
            usage = event.get("usage")
            if isinstance(usage, dict):
                counted = int(usage["completion_tokens"])
            stages.update(_stages(event))
    total = time.perf_counter() - began
    if counted != tokens:
        raise WrongAnswer(f"{api.url} made {counted} tokens of the {tokens} it was asked for")
    return Sample(seed, first, last, total, counted, "".join(text), stages)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, object]]:
    """The JSON objects of a server-sent event stream."""
    async for line in answer.content:
        data = line.removeprefix(b"data:").strip()
        if line.startswith(b"data:") and data != b"[DONE]":
            event = json.loads(data)
            if not isinstance(event, dict) or "error" in event:
                raise WrongAnswer(f"an error in the stream: {data.decode()}")
            yield event


def _words(event: Mapping[str, object]) -> str:
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices:
        return ""
    return choices[0].get("delta", {}).get("content") or ""


def _stages(event: Mapping[str, object]) -> dict[str, float]:
    """What our gateway tells when asked with x-triptych-times."""
    told = event.get("triptych")
    return dict(told.get("times", {})) if isinstance(told, dict) else {}
