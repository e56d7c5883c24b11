"""What is wrong with a resource: the API server and ``triptych validate`` agree on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from cluster.kubectl import Cluster
from control_plane import verdicts
from control_plane.verdicts import Server, refused_here
from mms_builders import manifest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))

pytestmark = pytest.mark.asyncio(loop_scope="module")


def whole(**parts: object) -> dict[str, Any]:
    """The minimal manifest with whole parts of it replaced; ``None`` takes one away."""
    body = deepcopy(manifest()) | parts
    return {name: part for name, part in body.items() if part is not None}


def named(**metadata: object) -> dict[str, Any]:
    return whole(metadata={"name": "shapes"} | metadata)


def scaled(**autoscaling: object) -> dict[str, Any]:
    metrics = [{"signal": "CPUUtilization", "target": 70}]
    return manifest(tiers__decode__autoscaling={"max": 3, "metrics": metrics} | autoscaling)


def metric(**one: object) -> dict[str, Any]:
    return scaled(metrics=[{"signal": "RunningRequests", "target": 8} | one])


def requested(**resources: object) -> dict[str, Any]:
    return manifest(tiers__encoder__resources={"requests": resources})


INVALID: dict[str, dict[str, Any]] = {
    # What it is
    "another kind": whole(kind="MultimodalServer"),
    "another version": whole(apiVersion="triptych.dev/v1"),
    "no kind": whole(kind=None),
    "no spec": whole(spec=None),
    "a list as spec": whole(spec=[]),
    "nothing in spec": whole(spec={}),
    # Names and metadata
    "a name with capitals": named(name="Shapes"),
    "a name with dots": named(name="a.b"),
    "a name that begins with a digit": named(name="1a"),
    "a name too long for its Services": named(name="a" * 41),
    "a label without a name": named(labels={"": "x"}),
    "a label with a blank": named(labels={"a": "b c"}),
    "an annotation that is a number": named(annotations={"a": 1}),
    "a misspelt metadata field": named(lables={}),
    # Unknown fields
    "an unknown field at the top": whole(sepc={}),
    "an unknown field in spec": manifest(modle={}),
    "an unknown field in a tier": manifest(tiers__encoder__replica=2),
    "an unknown field in a list": metric(targt=1),
    "a name of Python": manifest(model__served_name="x"),
    # Required fields
    "no model": manifest(model=None),
    "a model that is null": whole(spec={"model": None, "topology": "Fused"}),
    "no source": manifest(model__source=None),
    "no topology": manifest(topology=None),
    "an encoder without a revision": manifest(model__encoder={"source": "builtin://a"}),
    "autoscaling without a bound": manifest(tiers__decode__autoscaling={"min": 2}),
    # Types
    "a number as text": manifest(tiers__encoder__replicas="2"),
    "a text as number": manifest(model__revision=1),
    "half a pod": manifest(tiers__encoder__replicas=1.5),
    "true as a number": manifest(tiers__encoder__replicas=True),
    "a text as a list": manifest(engine__args="--host"),
    "null in a list": manifest(engine__args=[None]),
    "a list as an object": manifest(media=[]),
    # Enumerations and bounds
    "an unknown topology": manifest(topology="Split"),
    "an unknown number format": manifest(model__dtype="int4"),
    "an unknown transport": manifest(transfer__transport="rdma"),
    "no pods": manifest(tiers__encoder__replicas=0),
    "more pods than can be": manifest(tiers__encoder__replicas=1001),
    "more at least than at most": scaled(min=4),
    "a signal twice": scaled(metrics=[{"signal": "CPUUtilization", "target": 70}] * 2),
    "a signal of another tier": metric(signal="ImagesPerSecond"),
    "an unknown signal": metric(signal="GPUUtilization"),
    "a target of nothing": metric(target=0),
    "a negative target": metric(target=-1),
    "a policy of another type": scaled(
        behavior={"scaleUp": {"policies": [{"type": "Nodes", "value": 1, "periodSeconds": 1}]}}
    ),
    "pixels the wrong way round": manifest(model__processor={"minPixels": 9, "maxPixels": 4}),
    "a nested processor parameter": manifest(
        model__processor={"parameters": {"size": {"height": 4}}}
    ),
    "a list as a processor parameter": manifest(model__processor={"parameters": {"size": [4]}}),
    # Quantities, durations, references
    "a size with a blank": manifest(tiers__encoder__cache={"capacity": "1 Gi"}),
    "a size in another unit": manifest(tiers__encoder__cache={"capacity": "1GB"}),
    "a negative size": manifest(tiers__encoder__cache={"capacity": -1}),
    "no room for what arrives": manifest(transfer__landing=0),
    "a quantity of words": requested(cpu="two"),
    "a negative quantity": requested(cpu="-1"),
    "a quantity beyond all computers": requested(memory="1Ei"),
    "an unknown resource": requested(gpu=1),
    "a GPU that is only requested": requested(**{"nvidia.com/gpu": 1}),
    "half a GPU": manifest(tiers__encoder__resources={"limits": {"nvidia.com/gpu": "500m"}}),
    "a duration without a unit": manifest(tiers__encoder__drain={"timeout": "60"}),
    "a duration in days": manifest(tiers__encoder__drain={"timeout": "1d"}),
    "a lease of no time": manifest(transfer__lease="0s"),
    "a model by URL": manifest(model__source="https://huggingface.co/a/b"),
    "a model on somebody's disk": manifest(model__source="file:///srv/model"),
    "a claim outside itself": manifest(model__source="pvc://claim/../x"),
    "an image with a blank": manifest(engine__image="a b"),
    "an image with a short digest": manifest(engine__image="a@sha256:0123"),
    "a network with host bits": manifest(media__urlPolicy={"allowNetworks": ["10.1.2.3/8"]}),
    "an address as a network": manifest(media__urlPolicy={"allowNetworks": ["10.0.0.1"]}),
    # What does not go together
    "a tier of another topology": manifest(topology="Fused", tiers__decode__replicas=1),
    "replicas beside autoscaling": scaled() | manifest(
        tiers__decode=scaled()["spec"]["tiers"]["decode"] | {"replicas": 1}
    ),
    "encoders to lose where there are none": manifest(
        topology="Fused", degraded__onEncoderLoss="Queue"
    ),
    "a request above its limit": manifest(
        tiers__encoder__resources={"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}
    ),
    "a label of pods with a blank": manifest(
        tiers__encoder__template={"metadata": {"labels": {"team": "a b"}}}
    ),
}  # fmt: skip

VALID: dict[str, dict[str, Any]] = {
    **{path.stem: yaml.safe_load(path.read_text()) for path in EXAMPLES},
    "a whole number with a point": manifest(tiers__encoder__replicas=2.0),
    "a size as a whole number with a point": manifest(tiers__encoder__cache={"capacity": 1e9}),
    "null for what has a default": manifest() | {"spec": manifest()["spec"] | {"media": None}},
    "null for a field that may be left out": manifest(tiers__encoder={"replicas": None}),
    "null for a processor parameter": manifest(model__processor={"parameters": {"a": None}}),
    "null in a pod template": manifest(
        tiers__encoder__template={"spec": {"affinity": None, "containers": [{"tty": None}]}}
    ),
    "every scalar as a processor parameter": manifest(
        model__processor={"parameters": {"a": "b", "c": 1, "d": 0.5, "e": True, "f": 1e30}}
    ),
    "a device beside what is requested": manifest(
        tiers__encoder__resources={"requests": {"cpu": 1}, "limits": {"nvidia.com/gpu": 1}}
    ),
    "every notation of a quantity": manifest(
        tiers__encoder__resources={
            "requests": {"cpu": "0.5", "memory": "1.5Gi"},
            "limits": {"cpu": "1e3", "memory": 2**31, "ephemeral-storage": "129M"},
        }
    ),
    "an IPv6 network": manifest(media__urlPolicy={"allowNetworks": ["fd00::/8", "::/0"]}),
    "metadata of others": named(
        labels={"app.kubernetes.io/part-of": "x"}, annotations={"a/b": "any: text"},
        finalizers=["example.com/mine"],
    ),
    "a name as long as can be": named(name="a" * 40),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(cluster: Cluster) -> AsyncIterator[Server]:
    async with verdicts.server(cluster.kubeconfig) as running:
        yield running


@pytest.mark.parametrize("name", INVALID)
async def test_what_is_wrong_is_refused_by_both(server: Server, name: str) -> None:
    assert await server.refuses(INVALID[name]) != ""
    assert refused_here(INVALID[name]) != ""


@pytest.mark.parametrize("name", VALID)
async def test_what_is_right_is_taken_by_both(server: Server, name: str) -> None:
    assert await server.refuses(VALID[name]) == ""
    assert refused_here(VALID[name]) == ""
