"""``triptych status NAME``: how a service is, and why, as the operator last saw it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from triptych_operator.api.status import UNSEEN, Condition, ConditionType, ServiceStatus
from triptych_operator.cli.resource import Found, add_resource_arguments, find
from triptych_operator.cli.table import aligned

if TYPE_CHECKING:
    from argparse import _SubParsersAction

NOT_READY = 1


def add_to(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "status",
        help="how a service in the cluster is, and why",
        description="Prints how a MultimodalService is: its conditions, and every tier with what "
        "keeps it from being ready. Exits with 0 when it is ready, 1 when it is not.",
    )
    add_resource_arguments(command)
    command.set_defaults(run=run_status)


def run_status(options: argparse.Namespace) -> int:
    """Prints the status; 0 when the service is ready."""
    found = find(options)
    sys.stdout.write("\n".join(lines(found)) + "\n")
    ready = _condition(found.status, ConditionType.READY)
    return 0 if ready is not None and ready.status == "True" else NOT_READY


def lines(found: Found) -> Iterator[str]:
    """The status as text."""
    status = found.status
    yield f"{found.namespace}/{found.name}   {found.topology}   {status.url}".rstrip()
    if status.observed_generation == UNSEEN:
        yield "no operator has seen this yet: is it running?"
    elif status.observed_generation != found.generation:
        yield (
            f"the operator has not seen this change yet (generation {found.generation}, it saw "
            f"{status.observed_generation}): is it running?"
        )
    overall = (
        ConditionType.READY,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.CACHES_COHERENT,
    )
    for type_ in overall:
        condition = _condition(status, type_)
        if condition is not None:
            yield _sentence(condition)
    if status.tiers:
        yield ""
        yield from _table(status)


def _table(status: ServiceStatus) -> Iterator[str]:
    rows = [("TIER", "READY", "UPDATED", "REVISION", "WHY")]
    for tier in status.tiers:
        condition = _condition(status, ConditionType(f"{tier.name.title()}Ready"))
        unwell = condition is not None and condition.status != "True"
        why = f"{condition.reason}: {condition.message}" if condition and unwell else ""
        told = "; ".join(one for one in (why, tier.limited_by) if one)
        rows.append((tier.name, tier.pods, str(tier.updated), tier.revision, told))
    yield from aligned(rows)


def _condition(status: ServiceStatus, type_: ConditionType) -> Condition | None:
    return next((one for one in status.conditions if one.type == type_), None)


def _sentence(condition: Condition) -> str:
    return (
        f"{condition.type} {condition.status} since {condition.last_transition_time}: "
        f"{condition.reason}: {condition.message}"
    )
