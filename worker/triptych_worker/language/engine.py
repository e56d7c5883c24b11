"""The engine: one thread that steps the model, and the event loop's side of every sequence.

The loop's side opens sequences, feeds them and reads their outputs; the thread plans a step under
the lock, runs it without the lock, and hands all outputs of the step to the loop at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from functools import partial
from typing import Final

from triptych_contract.errors import InternalError, NonFinite, TriptychError, Unavailable
from triptych_contract.names import Metric, Stage

from triptych_worker.cores import Cores
from triptych_worker.domain import Load, Observer
from triptych_worker.free_cores import FreeCores
from triptych_worker.language.batching import pack
from triptych_worker.language.model import LanguageModel
from triptych_worker.language.pace import Pace
from triptych_worker.language.pool import KvPool
from triptych_worker.language.sampling import Chosen, Draw, choose
from triptych_worker.language.scheduler import Admitted, Chunk, Limits, Scheduler
from triptych_worker.language.scoring import logprobs
from triptych_worker.language.sequence import Placed, Sequence, Task
from triptych_worker.language.ticket import Message, Output, Reserved, Ticket
from triptych_worker.language.vocabulary import Vocabulary

_LOG: Final = logging.getLogger(__name__)
_RETRY_SECONDS: Final = (0.5, 30.0)  # least and most that an overloaded engine asks for
_Messages = list[tuple[int, Message]]


class Engine:
    """Runs sequences of one model. All public methods are called on the event loop.

    Args:
        model: the language model; only this engine's thread calls it.
        vocabulary: its tokenizer's side that answers need.
        pool: the keys and values of all sequences.
        limits: bounds.
        observer: is told how long prompts waited, and their tokens, as soon as it is so: what
            scales this tier must not wait for the end of a prompt or an answer.
        cores: shared with what else computes in this process.
        pace_seconds: least from one step to the next of answers alone, where others have the
            cores; 0 is none.
    """

    def __init__(
        self,
        model: LanguageModel,
        vocabulary: Vocabulary,
        pool: KvPool,
        limits: Limits,
        observer: Observer,
        *,
        cores: Cores,
        pace_seconds: float = 0.0,
    ) -> None:
        self._observer = observer
        self._cores = cores
        # Of one thread too it is asked whether others leave it the cores.
        self._free_cores = FreeCores(max(cores.threads, min(os.cpu_count() or 1, 2)))
        self._pace = Pace(pace_seconds, self._free_cores.most)
        self.model = model
        self.vocabulary = vocabulary
        self.pool = pool
        self.limits = limits
        self._numbers = itertools.count()
        self._tickets: dict[int, Ticket] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kept = False  # anything since the last plan; of the thread
        self._began = -math.inf  # the last step; of the thread
        self._thread = threading.Thread(target=self._run, name="language-engine", daemon=True)
        # What follows is guarded by the condition's lock.
        self._wake = threading.Condition()
        self._scheduler = Scheduler(limits)
        self._sequences: dict[int, Sequence] = {}
        self._closing: set[int] = set()
        self._stepping: frozenset[int] = frozenset()
        self._admitting = self._running = True
        self._seconds_per_token = 0.0

    def start(self) -> None:
        """Starts the thread; outputs go to the event loop that calls this."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def open(self, task: Task) -> Ticket:
        """Takes a sequence whose input may still be on the way.

        Raises:
            Unavailable: draining.
            PromptTooLong, Overloaded: see ``Scheduler.open``.
        """
        with self._wake:
            if not self._admitting:
                raise Unavailable("this worker has stopped; use another one")
            number = next(self._numbers)
            self._scheduler.open(number, task.demand, self._retry_after())
            self._sequences[number] = Sequence(number, task)
        ticket = Ticket(number, time.perf_counter())
        self._tickets[number] = ticket
        return ticket

    def queue(self, ticket: Ticket, placed: Items[Placed] = ()) -> None:
        """The sequence's input is here; ``placed`` are its embeddings, moved to no device yet."""
        ticket.queued = time.perf_counter()
        with self._wake:
            sequence = self._sequences[ticket.number]
            sequence.placed, sequence.queued = placed, ticket.queued
            self._scheduler.queue(ticket.number)
            self._wake.notify()

    def loaded(self, ticket: Ticket) -> None:
        """The keys and values that the task said were computed are in the sequence's range."""
        with self._wake:
            if ticket.number in self._scheduler:
                self._scheduler.loaded(ticket.number)
            self._wake.notify()

    def close(self, ticket: Ticket) -> None:
        """Ends the sequence, finished or not; its range is free after the step under way."""
        if self._tickets.pop(ticket.number, None) is None:
            return
        with self._wake:
            if ticket.number in self._stepping:
                self._closing.add(ticket.number)
            else:
                self._remove(ticket.number)
            self._wake.notify()

    def load(self) -> Load:
        """What there is to do."""
        with self._wake:
            return self._scheduler.load()

    def stop(self) -> None:
        """Ends the thread after the step under way; what is still open gets Unavailable."""
        with self._wake:
            self._admitting = self._running = False
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        stopped = Unavailable("this worker has stopped; use another one")
        for ticket in self._tickets.values():
            ticket.put(stopped)

    # On the thread.

    def _run(self) -> None:
        try:
            self._step_until_stopped()
        except BaseException:
            _LOG.critical(
                "the language engine has failed; this worker serves no more", exc_info=True
            )
            with self._wake:
                self._admitting = False
                numbers = list(self._sequences)
            failed = InternalError("the language engine has failed; use another worker")
            self._post([(number, failed) for number in numbers])
            raise

    def _step_until_stopped(self) -> None:
        while True:
            with self._wake:
                chunks, messages = self._next_step()
                rest = self._rest(chunks)
                if rest > 0:  # whatever comes meanwhile is planned for as well
                    chunks, self._stepping = (), frozenset()
                if not self._running:
                    return
                if not chunks and not messages:
                    self._wake.wait(rest or None)
                    if not rest:
                        self._free_cores.forget()
                    continue
            self._post(messages)
            if chunks:
                self._cores.submit(partial(self._turn, chunks), self._threads(chunks)).result()

    def _rest(self, chunks: Items[Chunk]) -> float:
        """Seconds until the step may begin: answers keep a pace, prompts none; under the lock."""
        if not chunks or _prompt_tokens(chunks, self._sequences):
            return 0.0
        return self._pace.rest(time.perf_counter(), self._began, self._free_cores.count())

    def _threads(self, chunks: Items[Chunk]) -> int:
        """How many share in a step: prompts are waited for and take all, answers what is free."""
        prompts = any(chunk.length > 1 for chunk in chunks)
        return (
            self._cores.threads if prompts else min(self._cores.threads, self._free_cores.count())
        )

    def _turn(self, chunks: Items[Chunk], waited: bool) -> None:  # noqa: FBT001 - as Cores calls it
        if waited:  # what came meanwhile joins the step
            with self._wake:
                chunks, messages = self._next_step()
            self._post(messages)
        if chunks:
            sequences = {chunk.sequence: self._sequences[chunk.sequence] for chunk in chunks}
            messages = self._step(chunks, sequences)
            self._post(messages)
            self._keep_prefixes(messages, sequences)

    def _next_step(self) -> tuple[Items[Chunk], _Messages]:
        """Removes what was closed, admits and plans; under the lock."""
        for number in self._closing:
            self._remove(number)
        self._closing.clear()
        messages: _Messages = []
        admitted = self._scheduler.admit()
        for each in admitted:
            self._sequences[each.sequence].kv_start = each.kv_start
            messages.append((each.sequence, Reserved(each.kv_start, time.perf_counter())))
        self._find_prefixes(admitted)
        chunks = self._scheduler.plan()
        self._stepping = frozenset(chunk.sequence for chunk in chunks)
        return chunks, messages

    def _step(self, chunks: Items[Chunk], sequences: Mapping[int, Sequence]) -> _Messages:
        """One forward pass. An error ends the sequences of this step and no others."""
        began = self._began = time.perf_counter()
        try:
            self._start(sequences.values(), began)
            messages = self._forward(chunks, sequences)
        except Exception:  # noqa: BLE001 - whatever it was, the other sequences must go on
            _LOG.exception("a step of %d sequences failed", len(chunks))
            messages = [
                (number, InternalError("the language model failed on this request; see the log"))
                for number in sequences
            ]
        seconds = time.perf_counter() - began
        stage = Stage.PREFILL if _prompt_tokens(chunks, sequences) else Stage.DECODE
        self._observer.add(Metric.BUSY_SECONDS, seconds, stage=stage)
        self._settle(chunks, messages, seconds)
        return messages

    def _start(self, sequences: Iterable[Sequence], now: float) -> None:
        """Begins sequences that have waited until now. A loaded one has waited for its range."""
        for sequence in sequences:
            if sequence.started is None:
                sequence.started = now
                sequence.load_prefix(self.pool)
                if not sequence.task.demand.computed:
                    self._observer.seconds(Stage.PREFILL_QUEUE, now - sequence.queued)

    def _forward(self, chunks: Items[Chunk], sequences: Mapping[int, Sequence]) -> _Messages:
        batch = pack(chunks, sequences, self.model.device)
        logits = self.model.forward(batch, self.pool)
        self._observer.add(Metric.INPUT_TOKENS, _prompt_tokens(chunks, sequences))
        sampling = [sequences[chunk.sequence] for chunk in chunks if chunk.samples]
        draws = [
            Draw(sequence.task.sampling, len(sequence.task.answer.token_ids))
            for sequence in sampling
        ]
        chosen = choose(logits, draws, self.model.eos_ids) if draws else []
        at = time.perf_counter()
        return [
            (sequence.number, self._message(sequence, token, at))
            for sequence, token in zip(sampling, chosen, strict=True)
        ]

    def _message(self, sequence: Sequence, chosen: Chosen | None, at: float) -> Message:
        if chosen is None:
            return NonFinite("the model gave no finite probabilities for this request")
        event = sequence.task.answer.push(chosen.token_id, logprobs(chosen, self.vocabulary))
        return Output(event, at, sequence.started or at)

    def _settle(self, chunks: Items[Chunk], messages: _Messages, seconds: float) -> None:
        """Books the step: what was computed, what has ended, what is kept for a reader."""
        tokens = sum(chunk.length for chunk in chunks)
        with self._wake:
            rate = seconds / tokens
            self._seconds_per_token += 0.1 * (rate - self._seconds_per_token)
            for chunk in chunks:
                self._sequences[chunk.sequence].computed(chunk, rate)
            self._scheduler.advance(chunks)
            for number, message in messages:
                if not isinstance(message, Output) or message.event.finish_reason:
                    self._remove(number)
                elif self._sequences[number].task.first_only:
                    self._scheduler.park(number)
            self._stepping = frozenset()

    def _find_prefixes(self, admitted: Iterable[Admitted]) -> None:
        """Has prompts of which nothing is computed yet begin with what was kept meanwhile."""
        unbegun = self._scheduler.unbegun()
        if not self._kept:
            unbegun = [each.sequence for each in admitted if each.sequence in unbegun]
        self._kept = False
        for number in unbegun:
            self._scheduler.skip(number, self._sequences[number].find_prefix())

    def _keep_prefixes(self, messages: _Messages, sequences: Mapping[int, Sequence]) -> None:
        """Leaves prompts that are done, and ends of answers, to whoever begins like them.

        The range of a sequence that has ended is still as it was: only this thread gives it to
        another.
        """
        for number, message in messages:
            sequence = sequences[number]
            if not isinstance(message, Output):
                continue
            if len(sequence.task.answer.token_ids) == 1 or message.event.finish_reason:
                self._kept = True
                try:
                    sequence.keep_prefix(self.pool)
                except Exception:  # noqa: BLE001 - the answer does not need it
                    _LOG.exception("keys and values of a prompt were not kept")

    def _remove(self, number: int) -> None:
        """Frees what a sequence holds, if it still does; under the lock."""
        sequence = self._sequences.pop(number, None)
        if sequence is None:
            return
        sequence.release_prefix()
        self._scheduler.remove(number)
        if not self._sequences:
            self._scheduler.check_integrity()

    def _retry_after(self) -> float:
        least, most = _RETRY_SECONDS
        return min(
            max(self._scheduler.load().backlog_tokens * self._seconds_per_token, least), most
        )

    def _post(self, messages: _Messages) -> None:
        if messages and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, messages)

    def _deliver(self, messages: Iterable[tuple[int, Message | TriptychError]]) -> None:
        for number, message in messages:
            ticket = self._tickets.get(number)
            if ticket is not None:  # closed meanwhile
                ticket.put(message)


def _prompt_tokens(chunks: Items[Chunk], sequences: Mapping[int, Sequence]) -> int:
    """How many of the tokens of ``chunks`` are of prompts; the others are of answers."""
    return sum(
        chunk.length
        for chunk in chunks
        if chunk.start < sequences[chunk.sequence].task.prompt_tokens
    )
