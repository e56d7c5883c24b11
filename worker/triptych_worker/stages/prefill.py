"""The prefill stage: runs a prompt, samples the first token, publishes keys and values."""

from __future__ import annotations

import secrets
import time
from functools import partial

from triptych_contract.fingerprints import KEY_BYTES

from triptych_worker.domain import (
    DecodeState,
    GenerateInput,
    Handle,
    HandleKind,
    Prefilled,
    TensorHolder,
    TensorSource,
)
from triptych_worker.language.engine import Engine
from triptych_worker.stages.intake import Intake, Run
from triptych_worker.stages.returns import LeaseReturns
from triptych_worker.stages.uninterrupted import uninterrupted


class Prefiller:
    """Implements ``domain.PrefillStage``.

    Args:
        intake: takes prompts into ``engine``.
        engine: whose pool the keys and values are published from.
        holder: where they are published.
        source: gives leases of this process back.
        kv_fingerprint: digest of the language model, which decode must be too.
    """

    def __init__(
        self,
        intake: Intake,
        engine: Engine,
        holder: TensorHolder,
        source: TensorSource,
        kv_fingerprint: str,
    ) -> None:
        self._intake = intake
        self._engine = engine
        self._holder = holder
        self._returns = LeaseReturns(source)
        self._kv_fingerprint = kv_fingerprint

    async def prefill(self, request: GenerateInput) -> Prefilled:
        """See ``domain.PrefillStage``; for what it raises, ``Intake.run``."""
        async with self._intake.run(request, first_only=True) as run:
            output = await run.first()
            kv = None if output.event.finish_reason else await self._publish(run)
            first = self._intake.first_event(run, output, time.perf_counter())
        state = DecodeState(run.task.prompt_tokens, run.task.delta, (first.token_id,))
        return Prefilled(first, kv, state)

    async def _publish(self, run: Run) -> Handle:
        start = (await run.ticket.reserved()).kv_start
        view = self._engine.pool.view(start, run.task.prompt_tokens)
        publish = partial(
            self._holder.publish,
            HandleKind.KV,
            secrets.token_bytes(KEY_BYTES),
            self._kv_fingerprint,
            view,
        )
        return await uninterrupted(publish, undo=lambda kv: self._returns.give_back([kv]))
