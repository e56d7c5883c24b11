"""The part of an answer that decode and fused stream: events, gaps between tokens, last times."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace

from triptych_contract.names import Count, Metric, Stage

from triptych_worker.domain import Observer, StageTimes, TokenEvent
from triptych_worker.language.ticket import Ticket


async def stream(
    ticket: Ticket,
    observer: Observer,
    *,
    began: float,
    tokens: int,
    before: Mapping[Stage, float] | None = None,
) -> AsyncGenerator[TokenEvent, None]:
    """The events of ``ticket``; the last one carries the times of decode.

    Args:
        ticket: the sequence.
        observer: is told gaps, durations and counts.
        began: when the token before was there, or decode could begin.
        tokens: output tokens there were before.
        before: durations already observed, which the last event carries too.
    """
    previous = began
    while True:
        output = await ticket.next()
        tokens += 1
        observer.time_per_output_token(output.at - previous)
        observer.add(Metric.OUTPUT_TOKENS)
        previous = output.at
        if output.event.finish_reason is not None:
            break
        yield output.event
    spent = {Stage.DECODE: output.at - began, **(before or {})}
    observer.seconds(Stage.DECODE, spent[Stage.DECODE])
    yield replace(output.event, times=stage_times(spent, {Count.OUTPUT_TOKENS: tokens}))


def stage_times(seconds: Mapping[Stage, float], counts: Mapping[Count, int]) -> StageTimes:
    """Times as events carry them, by name."""
    return StageTimes(
        {str(stage): value for stage, value in seconds.items()},
        {str(count): value for count, value in counts.items()},
    )
