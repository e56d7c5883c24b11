"""Every rule of the resource definition, broken and kept, before the real API server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from cluster.api import ApiError
from cluster.children import SERVICES
from cluster.kubectl import Cluster
from control_plane import verdicts
from control_plane.spec_places import Place, places, put, resource_around, resource_with
from control_plane.verdicts import Server, refused_here
from mms_builders import manifest

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Case:
    """Two values for the place of a rule, or for fields below it by dotted path."""

    breaks: object
    keeps: object


@dataclass(frozen=True)
class Occurrence:
    """A rule at one of its places."""

    place: Place
    cel: str
    message: str

    @property
    def name(self) -> str:
        return f"{self.place.name or 'resource'}: {self.message.split(':')[0]}"


def metric(signal: str, target: int | str = 1) -> dict[str, object]:
    return {"signal": signal, "target": target}


def external(name: str) -> dict[str, object]:
    return {**metric("External"), "external": {"name": name}}


def scaled(*metrics: dict[str, object]) -> dict[str, object]:
    return {"autoscaling": {"max": 2, "metrics": [*metrics]}}


RESTING = {"autoscaling": {"max": 2, "scaleToZeroAfter": "10m"}}
LOCAL = {"source": "file:///srv/models", "revision": "1", "servedName": "m"}
CLAIM = LOCAL | {"source": "pvc://models/m"}

# By the beginning of the rule's message.
CASES: dict[str, Case] = {
    "metadata.name must be": Case(
        {"metadata": {"name": "a" * 41}}, {"metadata": {"name": "a" * 40}}
    ),
    "topology Fused has the tiers": Case(
        {"topology": "Fused", "tiers": {"decode": {}}},
        {"topology": "Fused", "tiers": {"fused": {}}},
    ),
    "topology EncodeSplit has the tiers": Case(
        {"topology": "EncodeSplit", "tiers": {"prefill": {}}},
        {"topology": "EncodeSplit", "tiers": {"encoder": {}}},
    ),
    "topology FullSplit has the tiers": Case({"tiers": {"fused": {}}}, {"tiers": {"decode": {}}}),
    "topology Fused has no encoder tier": Case(
        {"topology": "Fused", "degraded": {"onEncoderLoss": "Queue"}},
        {"topology": "Fused", "degraded": {"queueTimeout": "1s"}},
    ),
    "file:// is for": Case({"source": "file:///srv/m"}, {"source": "pvc://claim/m"}),
    "not a model source": Case("https://host/m", "hf://org/m"),
    "minPixels must not": Case({"minPixels": 2, "maxPixels": 1}, {"minPixels": 2, "maxPixels": 2}),
    "not the name of a claim": Case("a..b", "a.b"),
    "not an image reference": Case("a b", "host.example:5000/a@sha256:" + "0" * 64),
    "give either replicas": Case(
        {"replicas": 1, **scaled(metric("CPUUtilization"))},
        {"replicas": 1, "autoscaling": {"mode": "Advise", "max": 2}},
    ),
    "encoders that scale to zero": Case(
        {"tiers": {"encoder": RESTING}},
        {"tiers": {"encoder": RESTING}, "degraded": {"onEncoderLoss": "Queue"}},
    ),
    "topology Fused has no tiers to balance": Case(
        {"topology": "Fused", "balance": {}}, {"balance": {"prefillPerDecode": {"min": 1}}}
    ),
    "topology EncodeSplit runs prefill and decode": Case(
        {"topology": "EncodeSplit", "balance": {"prefillPerDecode": {"max": 1}}},
        {"topology": "EncodeSplit", "balance": {"encoderPerPrefill": {"max": "500m"}}},
    ),
    "a ratio without bounds": Case({"max": None}, {"max": 1}),
    "min of a ratio": Case({"min": "0.501", "max": "500m"}, {"min": "500m", "max": "0.5"}),
    "tier encoder scales on": Case(
        scaled(metric("RunningRequests")), scaled(metric("ImagesPerSecond"), metric("QueueWait"))
    ),
    "tier prefill scales on": Case(
        scaled(metric("ImagesPerSecond")), scaled(metric("InputTokensPerSecond"))
    ),
    "tier decode scales on": Case(scaled(metric("QueueWait")), scaled(metric("KVUtilization"))),
    "tier fused scales on": Case(scaled(metric("ImagesPerSecond")), scaled(metric("QueueWait"))),
    "tier gateway scales on": Case(
        scaled(metric("QueueWait")), scaled(metric("RunningRequests"), metric("CPUUtilization"))
    ),
    "min must not exceed max": Case({"min": 3, "max": 2}, {"min": 2, "max": 2}),
    "each signal but External may be": Case(
        {"metrics": [metric("CPUUtilization", 1), metric("CPUUtilization", 2)]},
        {"metrics": [metric("CPUUtilization"), external("a"), external("a")]},
    ),
    "the target of CPUUtilization": Case(
        metric("MemoryUtilization", "1500m"), metric("CPUUtilization", "2k")
    ),
    "signal External and external.name": Case(metric("External"), external("queue_depth")),
    "a name in selector is none": Case(
        {"selector": {"a b": "c"}}, {"selector": {"a.example/b": "c"}}
    ),
    "not the name of a metric": Case("1a", "pubsub.example|depth:rate-1m"),
    "the target of KVUtilization": Case(
        scaled(metric("KVUtilization", "1001m")), scaled(metric("KVUtilization", "800m"))
    ),
    "a name in requests is no resource": Case(
        {"requests": {"gpu": 1}}, {"requests": {"memory": 1}}
    ),
    "a name in limits is no resource": Case(
        {"limits": {"a..b/gpu": 1}}, {"limits": {"amd.com/gpu": 1}}
    ),
    "requests must not exceed limits": Case(
        {"requests": {"cpu": "1001m"}, "limits": {"cpu": 1}},
        {"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": 1}},
    ),
    "devices such as nvidia.com/gpu cannot be shared": Case(
        {"limits": {"nvidia.com/gpu": "0.5"}}, {"limits": {"nvidia.com/gpu": "2", "cpu": "0.5"}}
    ),
    "devices such as nvidia.com/gpu are requested": Case(
        {"requests": {"nvidia.com/gpu": 1}}, {"limits": {"nvidia.com/gpu": 1}}
    ),
    "a name in labels is none": Case({"labels": {"a b": "c"}}, {"labels": {"a.example/b": "c"}}),
    "a name in annotations is none": Case(
        {"annotations": {"/b": "c"}}, {"annotations": {"B_c": "any text: 1"}}
    ),
    "not the value of a label": Case("a b", ""),
    "not a duration: write": Case("30", "0s"),
    "not a duration above 0": Case("0s", "1h30m"),
    "not the name of a header": Case("x_tenant", "X-Tenant"),
    "not a network": Case("10.0.0.1/8", "10.0.0.0/8"),
}

# What only a change can break: the field, a value and another one.
CHANGES = {"spec.model.servedName": ("shapes", "other")}


def occurrences() -> Iterator[Occurrence]:
    for place in places():
        for rule in place.schema.get("x-kubernetes-validations", ()):
            yield Occurrence(place, rule["rule"], rule["message"])


EVERY = list(occurrences())
OF_VALUES = [one for one in EVERY if "oldSelf" not in one.cel]
OF_CHANGES = [one for one in EVERY if "oldSelf" in one.cel]


def case_of(occurrence: Occurrence) -> Case:
    found = [case for begin, case in CASES.items() if occurrence.message.startswith(begin)]
    assert len(found) == 1, f"give CASES one entry for the rule: {occurrence.message}"
    return found[0]


def applied(place: Place, value: object) -> dict[str, Any]:
    """A valid resource with ``value`` at ``place``, or merged over it where it is an object."""
    if not isinstance(value, Mapping):
        return resource_with(place.path, value)
    body = resource_around((*place.path, "any"))
    for name, part in value.items():
        body = put(body, (*place.path, name), deepcopy(part))
    return body


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(cluster: Cluster) -> AsyncIterator[Server]:
    async with verdicts.server(cluster.kubeconfig) as running:
        yield running


@pytest.mark.parametrize("rule", OF_VALUES, ids=[one.name for one in OF_VALUES])
async def test_a_rule_refuses_what_breaks_it_and_nothing_beside(
    server: Server, rule: Occurrence
) -> None:
    case = case_of(rule)
    broken, kept = applied(rule.place, case.breaks), applied(rule.place, case.keeps)
    assert rule.message in await server.refuses(broken)
    assert rule.message in refused_here(broken)
    assert await server.refuses(kept) == ""
    assert refused_here(kept) == ""


async def test_every_case_belongs_to_a_rule() -> None:
    messages = [one.message for one in OF_VALUES]
    assert [it for it in CASES if not any(one.startswith(it) for one in messages)] == []


@pytest.mark.parametrize("rule", OF_CHANGES, ids=[one.name for one in OF_CHANGES])
async def test_what_cannot_be_changed_says_so(server: Server, rule: Occurrence) -> None:
    value, other = CHANGES[rule.place.name]
    api, collection = server.api, SERVICES.format(server.namespace)
    await api.create(collection, resource_with(rule.place.path, value))
    changed = resource_with(rule.place.path, other)
    with pytest.raises(ApiError, match=re.escape(rule.message)):
        await api.apply(f"{collection}/shapes", changed, manager="user")
    await api.apply(f"{collection}/shapes", manifest(model__revision="2"), manager="user")
