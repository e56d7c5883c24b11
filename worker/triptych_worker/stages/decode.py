"""The decode stage: pulls the keys and values of a prompt and goes on with its answer."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import torch
from triptych_contract.errors import FingerprintMismatch, InvalidRequest
from triptych_contract.names import Stage

from triptych_worker.domain import DecodeInput, Handle, Observer, TensorSource, TokenEvent
from triptych_worker.language.answer import Answer
from triptych_worker.language.engine import Engine
from triptych_worker.language.scheduler import Demand, answer_tokens
from triptych_worker.language.sequence import Task
from triptych_worker.language.ticket import Ticket
from triptych_worker.stages.intake import check_vocabulary
from triptych_worker.stages.returns import LeaseReturns
from triptych_worker.stages.streaming import stream
from triptych_worker.stages.uninterrupted import uninterrupted


class Decoder:
    """Implements ``domain.DecodeStage``.

    A sequence pulls its keys and values when it has a range of the pool, not before: what waits
    here stays in the memory of the prefill that made it.

    Args:
        engine: runs the sequences.
        source: leads from handles to tensors.
        kv_fingerprint: digest of this language model; keys and values of another are refused.
        observer: is told durations and counts.
    """

    def __init__(
        self, engine: Engine, source: TensorSource, kv_fingerprint: str, observer: Observer
    ) -> None:
        self._engine = engine
        self._source = source
        self._kv_fingerprint = kv_fingerprint
        self._observer = observer
        self._returns = LeaseReturns(source)

    async def decode(self, request: DecodeInput) -> AsyncGenerator[TokenEvent, None]:
        """See ``domain.DecodeStage``.

        Raises:
            FingerprintMismatch: the keys and values are of another language model.
            InvalidRequest: the state or the tensor's shape do not fit each other or the model.
            PromptTooLong, Overloaded, Unavailable: see ``Engine.open``.
            TriptychError: as ``TensorSource.borrow``.
        """
        try:
            self._check(request)
            ticket = self._engine.open(_task(request, self._engine))
        except Exception:
            self._returns.give_back([request.kv])
            raise
        try:
            loading, began = await self._load(ticket, request.kv)
            waits = {
                Stage.DECODE_QUEUE: loading - ticket.queued,
                Stage.KV_TRANSFER: began - loading,
            }
            for stage, value in waits.items():  # now, for the answer may take minutes
                self._observer.seconds(stage, value)
            rest = stream(
                ticket,
                self._observer,
                began=began,
                tokens=len(request.state.output_token_ids),
                before=waits,
            )
            async with aclosing(rest) as events:
                async for event in events:
                    yield event
        finally:
            self._engine.close(ticket)

    async def _load(self, ticket: Ticket, kv: Handle) -> tuple[float, float]:
        """Waits for a range and fills it; when it was there, and when it was full."""
        try:
            self._engine.queue(ticket)
            reserved = await ticket.reserved()
        except BaseException:
            self._returns.give_back([kv])
            raise
        async with self._source.borrow(kv) as tensor:
            await uninterrupted(partial(self._engine.pool.write, reserved.kv_start, tensor))
        self._engine.loaded(ticket)
        return reserved.at, time.perf_counter()

    def _check(self, request: DecodeInput) -> None:
        kv, state, model = request.kv, request.state, self._engine.model
        if kv.fingerprint != self._kv_fingerprint:
            raise FingerprintMismatch(
                f"keys and values are of language model {kv.fingerprint[:12]}, this is"
                f" {self._kv_fingerprint[:12]}: use a prefill and a decode of one model"
            )
        if kv.shape != model.layout.shape(state.prompt_tokens):
            raise InvalidRequest(
                f"keys and values of shape {kv.shape} are not those of {state.prompt_tokens}"
                f" prompt tokens, {model.layout.shape(state.prompt_tokens)}"
            )
        check_vocabulary(state.output_token_ids, model.vocab_size)


def _task(request: DecodeInput, engine: Engine) -> Task:
    state, sampling, model = request.state, request.sampling, engine.model
    prompt, outputs = state.prompt_tokens, len(state.output_token_ids)
    most = answer_tokens(prompt, sampling.max_tokens, model.context_tokens)
    if outputs >= most:
        raise InvalidRequest(
            f"the answer has {outputs} of at most {most} tokens already; nothing is left to decode"
        )
    answer = Answer(sampling, most, model.eos_ids, engine.vocabulary.decode)
    answer.resume(state.output_token_ids)
    return Task(
        demand=Demand(prompt + outputs, prompt, prompt + most - 1),
        prompt_tokens=prompt,
        token_ids=torch.empty(0, dtype=torch.long),
        positions=torch.empty(model.adapter.axes, 0, dtype=torch.long),
        delta=state.position_delta,
        answer=answer,
        sampling=sampling,
    )
