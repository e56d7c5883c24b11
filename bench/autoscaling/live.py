"""``python -m bench.autoscaling.live``: three loads on the real node, each of which grows one pool.

Brings up the node of e2e/node with the images of this checkout, installs the chart, and puts
pictures, long prompts and long answers on one service after the other, with quiet between them.
The HorizontalPodAutoscalers are the cluster's own; their signals are the operator's. Prints a
table, draws the plot, and fails if a load grew another pool than its own or a request failed.
``--by cpu`` has the same autoscalers look at the CPU instead, for comparison: what grows then is
told, not judged.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from triptych_contract.names import Tier

from bench.autoscaling import load, plot
from bench.autoscaling.load import Outcome, Phase
from bench.autoscaling.rehearsal import rehearse
from bench.autoscaling.simulate import on
from bench.autoscaling.system import Scaling
from bench.autoscaling.trips import Trip
from bench.autoscaling.verdict import Line, Stretch, line, problems
from bench.autoscaling.watch import Reading, watching

from cluster.kubectl import Cluster  # isort: skip # e2e can be found since watch is imported
from node.fixtures import running_node  # isort: skip
from node.metrics_server import metrics_server  # isort: skip
from tools.programs import CHART, Helm  # isort: skip

NAME: Final = "shapes"
READY_SECONDS: Final = 600.0  # of processes that load torch on two busy cores
_SYSTEM: Final = "triptych-system"
_CELL: Final = {"cpu": "100m", "memory": "512Mi"}
# What one pod should have. Of its own signal: a third of what each load brings.
TARGETS: Final = {
    "signals": {
        Tier.ENCODER: ("VisualTokensPerSecond", "32"),
        Tier.PREFILL: ("InputTokensPerSecond", "750"),
        Tier.DECODE: ("RunningRequests", "2"),
    },
    "cpu": dict.fromkeys((Tier.ENCODER, Tier.PREFILL, Tier.DECODE), ("CPUUtilization", "100")),
}
# Visual, prompt and output tokens of a request of each load.
TOKENS: Final = {
    "pictures": (16, 30, 2),
    "long prompts": (0, 1800, 2),
    "long answers": (0, 12, 300),
}
MOST: Final = 3
DOWN_SECONDS: Final = 5  # instead of 300, which would be long to watch
TIERS: Final = tuple(TARGETS["signals"])


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each load lasts, and the quiet after it: so long, or at most so long if it is
    ``brief`` and ends as soon as every pool is back at one pod."""

    load_seconds: float = 75.0
    quiet_seconds: float = 75.0
    brief: bool = False

    def phases(
        self, over: Callable[[float], bool] | None = None
    ) -> list[tuple[Phase, Tier | None]]:
        """Phases with the tier that each is to grow, after a first quiet; ``over`` ends quiets."""
        loads = (
            (Phase("pictures", self.load_seconds, 6.0, load.picture_question), Tier.ENCODER),
            (Phase("long prompts", self.load_seconds, 1.0, load.long_prompt), Tier.PREFILL),
            (
                Phase("long answers", self.load_seconds, make=load.long_answer, at_once=8),
                Tier.DECODE,
            ),
        )
        first = Phase("quiet at first", 10.0, over=over)
        phases: list[tuple[Phase, Tier | None]] = [(first, None)]
        for phase, tier in loads:
            quiet = Phase(f"quiet after {phase.name}", self.quiet_seconds, over=over)
            phases += [(phase, tier), (quiet, None)]
        return phases


@dataclass(frozen=True, slots=True)
class Proof:
    """What was measured."""

    stretches: tuple[Stretch, ...]
    readings: tuple[Reading, ...]
    outcomes: tuple[Outcome, ...]
    blind: tuple[str, ...]  # why looks failed, if any did

    @property
    def lines(self) -> list[Line]:
        """What each phase came to."""
        return [line(one, self.readings, self.outcomes) for one in self.stretches]


def manifest(by: str) -> str:
    """The service: one to three pods of each worker tier, scaled by ``signals`` or by ``cpu``."""
    quick = {"scaleDown": {"stabilizationWindowSeconds": DOWN_SECONDS}}
    scaled = {
        tier: {
            "resources": {"requests": _CELL},
            "autoscaling": {
                "min": 1,
                "max": MOST,
                "metrics": [{"signal": signal, "target": target}],
                "behavior": quick,
            },
        }
        for tier, (signal, target) in TARGETS[by].items()
    }
    memory = {"cache": {"capacity": "64Mi"}}
    tiers = {
        "encoder": scaled[Tier.ENCODER] | memory | {"limits": {"inflight": "64Mi"}},
        "prefill": scaled[Tier.PREFILL]
        | memory
        | {"limits": {"kvTokens": 16384, "outbox": "64Mi"}},
        "decode": scaled[Tier.DECODE] | {"limits": {"kvTokens": 65536, "outbox": "64Mi"}},
        "gateway": memory | {"resources": {"requests": _CELL}},
    }
    model = {"source": "builtin://shapes", "revision": "1", "servedName": NAME}
    spec = {
        "model": model,
        "topology": "FullSplit",
        "tiers": tiers,
        "transfer": {"landing": "64Mi"},
    }
    return json.dumps(
        {
            "apiVersion": "triptych.dev/v1alpha1",
            "kind": "MultimodalService",
            "metadata": {"name": NAME},
            "spec": spec,
        }
    )


@contextmanager
def service(cluster: Cluster, by: str = "signals") -> Iterator[str]:
    """The service within the block, where an operator runs; the URL of its gateway."""
    cluster.kubectl("apply", "-f", "-", manifest=manifest(by))
    try:
        _wait_ready(cluster)
        where = "jsonpath={.spec.clusterIP}"
        address = cluster.kubectl("get", "service", f"{NAME}-gateway", "-o", where)
        yield f"http://{address}:8000/v1"
    finally:
        cluster.kubectl("delete", "mms", NAME, "--wait=true")


def prove(cluster: Cluster, url: str, plan: Plan) -> Proof:
    """Puts the loads on the service and watches its autoscalers."""
    with watching(cluster, NAME) as watch:
        phases = plan.phases(watch.calm_since if plan.brief else None)
        times, outcomes = asyncio.run(load.run(url, [phase for phase, _ in phases]))
    stretches = tuple(
        Stretch(phase.name, start, end, grows)
        for (phase, grows), (start, end) in zip(phases, itertools.pairwise(times), strict=True)
    )
    return Proof(stretches, tuple(watch.readings), tuple(outcomes), tuple(watch.failures))


def expected(plan: Plan) -> list[Line]:
    """What the simulator says that the run will come to."""

    def trip(phase: str, at: float) -> Trip:
        visual, prompt, output = TOKENS[phase]
        return Trip(at, visual, prompt, output)

    scaling = {
        tier: Scaling(1, MOST, on(**{signal: target}))
        for tier, (signal, target) in TARGETS["signals"].items()
    }
    return rehearse(plan.phases(), scaling, DOWN_SECONDS, trip)


def table(lines: Sequence[Line]) -> str:
    """The run, one phase a line."""
    rows = [
        "| phase | requests | failed | TTFT P50, ms | P99, ms | most pods E / P / D | at its end"
        " | pod-seconds |",
        "|---|---:|---:|---:|---:|---|---|---:|",
    ]
    for one in lines:
        most, last = (" / ".join(str(n[tier]) for tier in TIERS) for n in (one.most, one.last))
        rows.append(
            f"| {one.stretch.name} | {one.requests} | {one.failed} | {one.ttft_p50 * 1000:.0f} |"
            f" {one.ttft_p99 * 1000:.0f} | {most} | {last} | {one.pod_seconds:.0f} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Runs it all; 1 if something did not go as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, default=Path("docs/autoscaling.png"))
    parser.add_argument("--by", choices=tuple(TARGETS), default="signals")
    parser.add_argument("--load-seconds", type=float, default=Plan().load_seconds)
    parser.add_argument("--quiet-seconds", type=float, default=Plan().quiet_seconds)
    options = parser.parse_args()
    plan = Plan(options.load_seconds, options.quiet_seconds)
    with (
        running_node() as node,
        _operator(node),
        _measured(node, options.by),
        service(node, options.by) as url,
    ):
        proof = prove(node, url, plan)
    signals = {tier: signal for tier, (signal, _) in TARGETS[options.by].items()}
    plot.draw(options.plot, proof.stretches, proof.readings, proof.outcomes, signals)
    print(f"Measured:\n\n{table(proof.lines)}")
    if options.by == "signals":
        print(f"\nSimulated:\n\n{table(expected(plan))}")
    for error in {one.error for one in proof.outcomes if one.error}:
        print(f"failed with {error}", file=sys.stderr)
    for failure in proof.blind:
        print(f"a look failed: {failure}", file=sys.stderr)
    wrong = problems(proof.lines)
    print("\n".join(wrong), file=sys.stderr)
    return int(bool(wrong) and options.by == "signals")


@contextmanager
def _measured(cluster: Cluster, by: str) -> Iterator[None]:
    """The CPU of pods is known within the block, if that is what is looked at."""
    if by != "cpu":
        yield
        return
    with tempfile.TemporaryDirectory() as folder, metrics_server(cluster, Path(folder)):
        yield


@contextmanager
def _operator(cluster: Cluster) -> Iterator[None]:
    """The chart within the block."""
    with tempfile.TemporaryDirectory() as home:
        helm = Helm(Path(home), cluster.kubeconfig)
        helm.run(
            *("install", "triptych", CHART, "--namespace", _SYSTEM, "--create-namespace"),
            *("--set", "replicas=1", "--wait", "--timeout", "110s"),
        )
        try:
            yield
        finally:
            helm.run("uninstall", "triptych", "--namespace", _SYSTEM, "--wait")


def _wait_ready(cluster: Cluster) -> None:
    """Until the service serves.

    Raises:
        TimeoutError: it does not; says what stands.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            cluster.kubectl("wait", "--for=condition=Ready", f"mms/{NAME}", "--timeout=30s")
        except subprocess.CalledProcessError as error:
            if time.monotonic() > deadline:
                pods = cluster.kubectl("get", "pods", "-o", "wide")
                raise TimeoutError(f"{NAME} does not get ready:\n{pods}") from error
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
