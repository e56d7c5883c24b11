"""The whole benchmark at a small size: every phase, and that the operator in Go is a fair peer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest
from cluster.children import COLLECTIONS

from bench.operator import shape
from bench.operator.calls import CallLog
from bench.operator.history import History
from bench.operator.phases import Field, Plan, all_phases
from bench.operator.plane import AUTHOR, Api, cluster, stop_controllers
from bench.operator.results import report, result_of
from bench.operator.systems import SYSTEMS, operating, user

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),  # builds Kubernetes and the operator in Go the first time
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go to build both"),
]

PLAN: Final = Plan(
    resources=4,
    steady=2,
    bursts=1,
    pods=False,
    changes=2,
    pause=0.2,
    calm=2.0,
    idle=5.0,
    limit=120.0,
)


async def test_a_small_run_has_every_figure_and_both_operators_make_the_same(
    tmp_path: Path,
) -> None:
    log = CallLog(tmp_path, [AUTHOR, *map(user, SYSTEMS)])
    async with (
        cluster(tmp_path, log, SYSTEMS) as plane,
        Api(plane.kubeconfig) as api,
        operating(plane, SYSTEMS, tmp_path, signals=False) as running,
    ):
        histories = {name: History(name, AUTHOR, user(name)) for name in SYSTEMS}
        ground = Field(api, log, running, histories, lambda: stop_controllers(plane), print)
        await all_phases(ground, PLAN)
        for name in PLAN.steady_names():
            await _applies_what_we_would(api, "go-1", name, manager="peer")
    results = {
        name: result_of(name, history, PLAN, ground.stretches)
        for name, history in histories.items()
    }
    for result in results.values():
        assert len(result.created) == PLAN.steady
        assert len(result.patched) == PLAN.changes
        assert result.idle_writes == 0
    assert results["ours"].writes_per_change == 1.0
    assert results["go-1"].writes_per_change >= 1.0
    assert "ours : Go, 16 workers" in report(PLAN, results)


async def _applies_what_we_would(api: Api, namespace: str, name: str, *, manager: str) -> None:
    """Applying our manifests under the peer's name changes nothing, so they are what it applied."""
    body = await api.get(f"{shape.COLLECTION.format(namespace)}/{name}")
    manifests = shape.desired(body)
    assert len(manifests) == len(shape.children(name))
    for manifest in manifests:
        metadata = manifest["metadata"]
        assert isinstance(metadata, dict)
        path = f"{COLLECTIONS[str(manifest['kind'])].format(namespace)}/{metadata['name']}"
        found = await api.get(path)
        applied = await api.apply(path, manifest, manager=manager, dry_run=True)
        versions = [one["metadata"]["resourceVersion"] for one in (found, applied)]
        assert versions[0] == versions[1], path
