"""How a prompt gets into the engine: checked, with its embeddings, and out again whatever happens.

What prefill and fused have in common.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import torch
from triptych_contract.errors import FingerprintMismatch, InvalidRequest
from triptych_contract.names import Count, Metric, Stage

from triptych_worker.domain import GenerateInput, MediaItem, Observer, TokenEvent
from triptych_worker.language.answer import Answer
from triptych_worker.language.engine import Engine
from triptych_worker.language.prefix_cache import Prefix, PrefixCache
from triptych_worker.language.scheduler import Demand, answer_tokens
from triptych_worker.language.sequence import Task
from triptych_worker.language.ticket import Output, Ticket
from triptych_worker.stages.embeddings import EmbeddingReader, Fetched
from triptych_worker.stages.streaming import stage_times


@dataclass(frozen=True, slots=True)
class Run:
    """A prompt in the engine. ``embeddings`` closes what its embeddings are read from."""

    ticket: Ticket
    task: Task
    prefix: Prefix
    fetched: Fetched
    embeddings: AsyncExitStack

    async def first(self) -> Output:
        """The first token; the embeddings have been read by then."""
        output = await self.ticket.next()
        await self.embeddings.aclose()
        return output


class Intake:
    """Takes prompts.

    Args:
        engine: runs them.
        embeddings: finds the embeddings of their pictures.
        prefixes: what prompts before them have computed.
        fingerprint: of the encoder whose embeddings are taken; empty takes that of any request.
        observer: is told durations and counts.
    """

    def __init__(
        self,
        engine: Engine,
        embeddings: EmbeddingReader,
        prefixes: PrefixCache,
        fingerprint: str,
        observer: Observer,
    ) -> None:
        self._engine = engine
        self._embeddings = embeddings
        self._prefixes = prefixes
        self._fingerprint = fingerprint
        self._observer = observer

    @asynccontextmanager
    async def run(self, request: GenerateInput, *, first_only: bool) -> AsyncGenerator[Run, None]:
        """The prompt, queued; leaving the context frees all that it holds.

        Raises:
            FingerprintMismatch: a picture is of another encoder version.
            InvalidRequest: tokens or embeddings do not fit the model.
            PromptTooLong, Overloaded, Unavailable: see ``Engine.open``.
        """
        media = request.prompt.media
        try:
            self._check(request)
            task, prefix, ticket = self._open(request, first_only=first_only)
        except Exception:
            self._embeddings.release(media)
            raise
        try:
            async with AsyncExitStack() as stack:
                cached = task.demand.cached
                self._embeddings.release([item for item in media if _end(item) <= cached])
                wanted = [item for item in media if _end(item) > cached]
                fetched = await self._embeddings.fetch(wanted, stack)
                self._engine.queue(ticket, fetched.placed)
                yield Run(ticket, task, prefix, fetched, stack)
        finally:
            self._engine.close(ticket)

    def first_event(self, run: Run, output: Output, until: float) -> TokenEvent:
        """The first token with the times of prefill, which ended at ``until``; also observed."""
        seconds = {
            Stage.PREFILL_QUEUE: output.started - run.ticket.queued,
            Stage.PREFILL: until - output.started,
        }
        counts = {
            Count.PROMPT_TOKENS: run.task.prompt_tokens,
            Count.KV_PREFIX_TOKENS: run.prefix.tokens,
        }
        if run.fetched.placed:
            seconds[Stage.EMBEDDING_TRANSFER] = run.fetched.seconds
            counts[Count.VISUAL_TOKENS] = sum(len(part.rows) for part in run.fetched.placed)
            counts[Count.EMBEDDING_CACHE_HITS] = run.fetched.hits
        if output.event.finish_reason is not None:
            counts[Count.OUTPUT_TOKENS] = 1
        for stage, value in seconds.items():
            if stage is not Stage.PREFILL_QUEUE:  # told by the engine when the wait was over
                self._observer.seconds(stage, value)
        self._observer.add(Metric.OUTPUT_TOKENS)
        return replace(output.event, times=stage_times(seconds, counts))

    def _open(self, request: GenerateInput, *, first_only: bool) -> tuple[Task, Prefix, Ticket]:
        task, prefix = _task(request, self._engine, self._prefixes, first_only=first_only)
        try:
            return task, prefix, self._engine.open(task)
        except Exception:
            prefix.release()
            raise

    def _check(self, request: GenerateInput) -> None:
        if not request.prompt.media:
            return
        expected = self._fingerprint or request.fingerprint
        of_media = [item.handle.fingerprint for item in request.prompt.media]
        for found in (request.fingerprint, *of_media):
            if found != expected:
                raise FingerprintMismatch(
                    f"an embedding is of encoder {found[:12]}, this request runs with"
                    f" {expected[:12]}: lease the embedding again"
                )


def _end(item: MediaItem) -> int:
    """The first token of the prompt after the picture."""
    return item.spans[-1].offset + item.spans[-1].length


def _task(
    request: GenerateInput, engine: Engine, prefixes: PrefixCache, *, first_only: bool
) -> tuple[Task, Prefix]:
    """The task, and what it found, which is to be released if it is not taken."""
    prompt, sampling, model = request.prompt, request.sampling, engine.model
    check_vocabulary(prompt.token_ids, model.vocab_size)
    length = len(prompt.token_ids)
    most = answer_tokens(length, sampling.max_tokens, model.context_tokens)
    positions, delta = model.adapter.positions(prompt)
    prefix = Prefix(prefixes, prompt, request.salt)  # last, as it costs most and holds something
    task = Task(
        # The last token of an answer is never computed on, so it takes no room.
        demand=Demand(length, 0, length if first_only else length + most - 1, prefix.tokens),
        prompt_tokens=length,
        token_ids=torch.tensor(prompt.token_ids),
        positions=positions,
        delta=delta,
        answer=Answer(sampling, most, model.eos_ids, engine.vocabulary.decode),
        sampling=sampling,
        first_only=first_only,
        prefix=prefix,
    )
    return task, prefix


def check_vocabulary(token_ids: tuple[int, ...], vocab_size: int) -> None:
    """Raises InvalidRequest if a token is not of the model's vocabulary."""
    if not token_ids or min(token_ids) < 0 or max(token_ids) >= vocab_size:
        raise InvalidRequest(
            f"there is no token, or one outside the vocabulary of {vocab_size};"
            " use the tokenizer of the served model"
        )
