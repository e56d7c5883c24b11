"""One run: a cluster, the operators, all phases, the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.operator.calls import CallLog
from bench.operator.history import History
from bench.operator.phases import Field, Plan, all_phases
from bench.operator.plane import AUTHOR, Api, cluster, stop_controllers
from bench.operator.results import Result, result_of
from bench.operator.systems import operating, user


async def measure(
    plan: Plan,
    systems: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
    *,
    signals: bool = False,
) -> dict[str, Result]:
    """The figures of each operator, which all run at once on one cluster in ``folder``.

    Args:
        signals: ours asks pods for what they measure.

    Raises:
        TimeoutError: an operator did not get done in the time of a phase.
        DidNotStart: a program ended.
    """
    log = CallLog(folder, [AUTHOR, *map(user, systems)])
    say("starting the cluster")
    async with (
        cluster(folder, log, systems) as plane,
        Api(plane.kubeconfig) as api,
        operating(plane, systems, folder, signals=signals) as running,
    ):
        histories = {name: History(name, AUTHOR, user(name)) for name in systems}
        ground = Field(api, log, running, histories, lambda: stop_controllers(plane), say)
        await all_phases(ground, plan)
        return {
            name: result_of(name, history, plan, ground.stretches)
            for name, history in histories.items()
        }
