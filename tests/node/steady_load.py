"""Requests that never pause, each with its one right answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import openai
from node_questions import MODEL, Question, contents


@dataclass(frozen=True)
class Asked:
    """One request and what came of it: an answer, or an error. Times are of
    ``time.monotonic()``."""

    sent: float
    ended: float
    question: Question
    answer: str = ""
    error: str = ""
    retryable: bool = False  # the error is one that the official client tries again by itself


@dataclass
class SteadyLoad:
    """Some threads that ask one question after another until they are stopped."""

    url: str
    questions: tuple[Question, ...]
    asked: list[Asked] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def failed(self) -> list[Asked]:
        """Requests that got no answer."""
        return [one for one in self.asked if one.error]

    @property
    def wrong(self) -> list[Asked]:
        """Answers that are not the right one of the first encoder."""
        return [one for one in self.asked if one.answer not in ("", one.question.answer)]

    def wait_for(self, more: int, seconds: float) -> None:
        """Waits until ``more`` further requests have been answered.

        Raises:
            TimeoutError: they were not.
        """
        wanted, deadline = len(self.asked) + more, time.monotonic() + seconds
        while len(self.asked) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.asked)} of {wanted} requests; {self.failed[-3:]}")
            time.sleep(0.1)

    def run(self, start: int) -> None:
        """Asks until it is stopped, beginning with question ``start``."""
        client = openai.OpenAI(base_url=self.url, api_key="none", timeout=120, max_retries=0)
        turn = start
        while not self._stop.is_set():
            question = self.questions[turn % len(self.questions)]
            self.asked.append(_ask(client, question))
            turn += 1

    def stop(self) -> None:
        """Lets each thread finish what it asked."""
        self._stop.set()


@contextmanager
def steady_load(url: str, *questions: Question, threads: int = 2) -> Iterator[SteadyLoad]:
    """Load within the block; what was asked is complete after it."""
    load = SteadyLoad(url, questions)
    running = [threading.Thread(target=load.run, args=(start,)) for start in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield load
    finally:
        load.stop()
        for thread in running:
            thread.join()


def _ask(client: openai.OpenAI, question: Question) -> Asked:
    sent = time.monotonic()
    try:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": contents(question)}],
            max_tokens=64,
            temperature=0,
        )
    except openai.OpenAIError as error:
        told = f"{type(error).__name__}: {error}"
        again = isinstance(error, openai.APIConnectionError | openai.InternalServerError)
        return Asked(sent, time.monotonic(), question, error=told, retryable=again)
    text = (answer.choices[0].message.content or "").strip()
    return Asked(sent, time.monotonic(), question, text)
