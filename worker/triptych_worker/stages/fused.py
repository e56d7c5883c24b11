"""The fused stage: prefill and decode in one engine, keys and values staying where they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from triptych_worker.domain import GenerateInput, Observer, TokenEvent
from triptych_worker.stages.intake import Intake
from triptych_worker.stages.streaming import stream


class Fused:
    """Implements ``domain.FusedStage``."""

    def __init__(self, intake: Intake, observer: Observer) -> None:
        self._intake = intake
        self._observer = observer

    async def generate(self, request: GenerateInput) -> AsyncGenerator[TokenEvent, None]:
        """See ``domain.FusedStage``; for what it raises, ``Intake.run``."""
        async with self._intake.run(request, first_only=False) as run:
            first = await run.first()
            yield self._intake.first_event(run, first, first.at)
            if first.event.finish_reason is not None:
                return
            rest = stream(run.ticket, self._observer, began=first.at, tokens=1)
            async with aclosing(rest) as events:
                async for event in events:
                    yield event
