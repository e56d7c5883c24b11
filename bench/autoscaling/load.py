"""Load of one kind after another: at a given rate, or so many requests at a time.

Pictures and prompts come at a rate, however fast they are answered: a closed loop would slow down
with the servers, and so hide what autoscaling is for. Answers that are written at the same time are
what decode is made for, so of these there are so many, on a fast machine as on a slow one.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
import numpy as np
from PIL import Image

REQUEST_SECONDS = 120.0
_LOOK_SECONDS = 0.5  # between looks whether a phase is over
_SIDE = 112  # pixels: 16 visual tokens of the built-in model
_WORDS = ("how", "many", "blue", "red", "square", "circle", "picture", "the", "and", "are")

Body = dict[str, object]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of one kind of request. ``make`` gives the request of a number; no two are alike,
    so no cache answers for a stage."""

    name: str
    seconds: float
    rate: float = 0.0  # requests per second; 0 with ``at_once``
    make: Callable[[int], Body] | None = None
    at_once: int = 0  # requests at a time, each followed by another until the phase ends
    over: Callable[[float], bool] | None = None  # ends it early; is told when it began


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. Times are seconds; ``at`` since the load began."""

    phase: str
    at: float
    first: float = 0.0  # until the first text
    total: float = 0.0
    error: str = ""


def picture_question(number: int) -> Body:
    """A short question about a picture of its own, with an answer of two tokens."""
    colours = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(colours).resize((_SIDE, _SIDE)).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "what is in this picture"},
    ]
    return _request(content, tokens=2)


def long_prompt(number: int, words: int = 1800) -> Body:
    """Many words that no other prompt begins with, and an answer of two tokens."""
    choice = random.Random(number)
    return _request(f"{number} {' '.join(choice.choices(_WORDS, k=words))}", tokens=2)


def long_answer(number: int, tokens: int = 300) -> Body:
    """A short question with a long answer."""
    return _request(f"{number} tell a story", tokens=tokens)


def _request(content: object, tokens: int) -> Body:
    return {
        "model": "shapes",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }


async def run(url: str, phases: Sequence[Phase]) -> tuple[list[float], list[Outcome]]:
    """One phase after the other; all that was asked has its outcome when this returns.

    Returns:
        When each phase began and the last one ended, by ``time.monotonic``; and what became of each
        request.
    """
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        connector=aiohttp.TCPConnector(limit=0),
    ) as session:
        client = _Client(session, f"{url}/chat/completions", time.monotonic())
        times = [client.began]
        async with asyncio.TaskGroup() as group:
            for phase in phases:
                await client.send(phase, times[-1], group)
                times.append(await _end(phase, times[-1]))
    return times, client.outcomes


@dataclass(slots=True)
class _Client:
    session: aiohttp.ClientSession
    url: str
    began: float
    outcomes: list[Outcome] = field(default_factory=list)
    sent: int = 0

    async def send(self, phase: Phase, start: float, group: asyncio.TaskGroup) -> None:
        """Starts all requests of a phase that begins at ``start``."""
        if phase.make is None:
            return
        for _ in range(phase.at_once):
            group.create_task(self._ask_until(start + phase.seconds, phase.name, phase.make))
        for index in range(int(phase.rate * phase.seconds)):
            await _until(start + index / phase.rate)
            data = await self._body(phase.make)
            group.create_task(self._ask(phase.name, data, time.monotonic()))

    async def _ask_until(self, end: float, phase: str, make: Callable[[int], Body]) -> None:
        while True:
            data = await self._body(make)
            now = time.monotonic()
            if now >= end:
                return
            await self._ask(phase, data, now)

    async def _body(self, make: Callable[[int], Body]) -> bytes:
        self.sent += 1
        return json.dumps(await asyncio.to_thread(make, self.sent)).encode()

    async def _ask(self, phase: str, data: bytes, sent: float) -> None:
        first, error = 0.0, "the stream ended before its end"
        headers = {"content-type": "application/json"}
        try:
            async with self.session.post(self.url, data=data, headers=headers) as answer:
                async for line in answer.content:
                    if answer.status != 200 or b'"error"' in line:
                        error = f"{answer.status}: {line.decode(errors='replace').strip()}"
                    elif b'"content"' in line:
                        first = first or time.monotonic() - sent
                    elif line.strip() == b"data: [DONE]" and first:
                        error = ""
        except (aiohttp.ClientError, TimeoutError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        total = time.monotonic() - sent
        self.outcomes.append(Outcome(phase, sent - self.began, first, total, error))


async def _end(phase: Phase, began: float) -> float:
    """Waits for the end of a phase; when that is."""
    latest = began + phase.seconds
    while phase.over is not None and time.monotonic() < latest:
        if phase.over(began):
            return time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)
    await _until(latest)
    return latest


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
