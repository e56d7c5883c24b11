"""Every place of the resource with every kind of value, before the real API server.

Who takes a value and who refuses it agree; what is taken becomes manifests that the server takes
and keeps as they are. TRIPTYCH_SWEEP=full tries what all tiers have in each of them; otherwise each
such place is tried in one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from cluster.kubectl import Cluster
from control_plane import verdicts
from control_plane.faults.sweep import FULL
from control_plane.leaf_values import empty_values, right_values, wrong_values
from control_plane.spec_places import Place, is_in_sample, places, resource_with
from control_plane.verdicts import Server, refused_here
from triptych_operator.api.manifests import validate_service
from triptych_operator.desired.difference import is_as_wanted, sealed
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import desired_state

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLATFORM = Platform(image="triptych-worker:test")
SPEC = [place for place in places() if place.path[:1] == ("spec",)]
EVERY = SPEC if FULL else [place for place in SPEC if is_in_sample(place)]
FOLDER = Path(__file__).resolve().parents[1] / "triptych_operator/desired/golden"
GOLDEN = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}


class Manifests:
    """Asks the server about manifests, about equal ones once."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._kept: set[str] = set()

    async def check(self, manifests: list[Any]) -> None:
        """Each is taken, and stored with every field as it was sent."""
        for manifest in map(sealed, manifests):
            digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
            if digest in self._kept:
                continue
            stored = await self._server.apply(manifest)
            assert is_as_wanted(manifest, stored), (manifest, stored)
            self._kept.add(digest)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(cluster: Cluster) -> AsyncIterator[Server]:
    async with verdicts.server(cluster.kubeconfig) as running:
        yield running


@pytest.fixture(scope="module")
def manifests(server: Server) -> Manifests:
    return Manifests(server)


def desired(body: dict[str, Any], namespace: str) -> list[Any]:
    metadata = {"name": "shapes", "namespace": namespace, "uid": "0a1b"}
    made: list[Any] = desired_state(
        validate_service(body | {"metadata": metadata}, "test"), PLATFORM
    )
    return made


@pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN.keys())
async def test_manifests_that_were_reviewed_are_kept_as_they_are(
    server: Server, manifests: Manifests, golden: str
) -> None:
    made = list(yaml.safe_load_all(golden))
    for manifest in made:
        manifest["metadata"]["namespace"] = server.namespace
    await manifests.check(made)


@pytest.mark.parametrize("place", EVERY, ids=[place.name for place in EVERY])
async def test_both_judge_alike_and_what_they_take_becomes_what_the_cluster_takes(
    server: Server, manifests: Manifests, place: Place
) -> None:
    right, wrong = right_values(place), wrong_values(place)
    for name, value in {**right, **wrong, **empty_values(place)}.items():
        body = resource_with(place.path, value)
        theirs, ours = await server.refuses(body), refused_here(body)
        assert bool(theirs) == bool(ours), (name, theirs, ours)
        assert not (name in right and theirs), (name, theirs)
        assert not (name in wrong and not theirs), name
        if not theirs:
            made = desired(body, server.namespace)
            assert made == desired(await server.stored(body), server.namespace), name
            await manifests.check(made)
