"""Requests that never pause while versions change, each judged by the version its answer names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2 as httpx
from coherence.versions import Question, Version
from triptych_contract.names import FINGERPRINT_HEADER

REQUEST_SECONDS = 120.0
PAUSE_SECONDS = 0.3  # leaves the cores to what is being started


@dataclass(frozen=True)
class Asked:
    """One request and what came back."""

    question: Question
    status: int
    text: str
    fingerprint: str = ""
    visual_tokens: int = 0


@dataclass
class SteadyLoad:
    """Asks gateways in turn; ``urls`` may change at any time."""

    questions: Sequence[Question]
    urls: list[str] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    @property
    def failed(self) -> list[Asked]:
        """Requests without an answer."""
        return [one for one in self.asked if one.status != httpx.codes.OK]

    def stale(self, versions: dict[str, Version]) -> list[Asked]:
        """Answers that are not those of the version that they name.

        Args:
            versions: by encoder fingerprint.
        """
        return [
            one
            for one in self.asked
            if one.status == httpx.codes.OK and not _right(one, versions[one.fingerprint])
        ]

    async def wait_for(self, more: int, seconds: float = REQUEST_SECONDS) -> None:
        """Waits until ``more`` further requests have ended.

        Raises:
            TimeoutError: they have not.
        """
        wanted = len(self.asked) + more
        async with asyncio.timeout(seconds):
            while len(self.asked) < wanted:  # noqa: ASYNC110 - counts, which no event tells
                await asyncio.sleep(0.02)

    async def run(self, start: int) -> None:
        """Asks until it is cancelled, beginning with question ``start``."""
        turn = start
        async with httpx.AsyncClient(timeout=REQUEST_SECONDS) as client:
            while True:
                url = self.urls[turn % len(self.urls)]
                question = self.questions[turn % len(self.questions)]
                self.asked.append(await _ask(client, url, question))
                turn += 1
                await asyncio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def steady_load(questions: Sequence[Question], url: str) -> AsyncIterator[SteadyLoad]:
    """Load from two clients within the block."""
    load = SteadyLoad(questions, [url])
    running = [asyncio.create_task(load.run(start)) for start in (0, 3)]
    try:
        yield load
    finally:
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


def _right(one: Asked, version: Version) -> bool:
    return (one.text, one.visual_tokens) == (one.question.expected(version), version.visual_tokens)


async def _ask(client: httpx.AsyncClient, url: str, question: Question) -> Asked:
    content = [
        {"type": "image_url", "image_url": {"url": question.picture}},
        {"type": "text", "text": question.text},
    ]
    body = {
        "model": "shapes",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 24,
    }
    try:
        answer = await client.post(
            f"{url}/v1/chat/completions", json=body, headers={"x-triptych-times": "1"}
        )
    except httpx.HTTPError as error:
        return Asked(question, 0, f"{url}: {type(error).__name__} {error}")
    if answer.status_code != httpx.codes.OK:
        return Asked(question, answer.status_code, answer.text)
    told = answer.json()
    return Asked(
        question,
        answer.status_code,
        told["choices"][0]["message"]["content"].strip(),
        answer.headers[FINGERPRINT_HEADER],
        told["triptych"]["counts"]["visual_tokens"],
    )
