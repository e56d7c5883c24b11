"""Random walks of a resource: a first spec and edits of it, each of them valid. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from control_plane.spec_places import REMOVED
from hypothesis import strategies as st
from mms_builders import manifest
from triptych_contract.names import TOPOLOGY_TIERS, Tier, Topology
from triptych_operator.api.autoscaling import SIGNALS, Signal

Spec = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
Edit = Callable[[Draw, Spec], None]

FIELDS: Final[Mapping[tuple[str, str], tuple[object, ...]]] = {
    ("model", "revision"): ("1", "2", "3"),
    ("model", "dtype"): ("float32", "bfloat16", REMOVED),
    ("model", "encoder"): ({"source": "builtin://shapes", "revision": "2"}, REMOVED),
    ("model", "processor"): ({"maxPixels": 4096}, {"parameters": {"do_resize": False}}, REMOVED),
    ("model", "downloadClaim"): ("hub", REMOVED),
    ("engine", "image"): ("registry.example/worker:2", REMOVED),
    ("engine", "args"): (["--host", "::"], REMOVED),
    ("media", "budgets"): ({"default": {"maxItems": 4}}, REMOVED),
    ("media", "urlPolicy"): ({"allowNetworks": ["10.0.0.0/8"]}, REMOVED),
    ("transfer", "transport"): ("grpc", "nixl", REMOVED),
    ("transfer", "lease"): ("45s", REMOVED),
    ("degraded", "queueTimeout"): ("20s", REMOVED),
    ("rollout", "surgePercent"): (1, 50, REMOVED),
}

# Each of a kind that another notation or no value at all brings back to the same children.
TIER_FIELDS: Final[Mapping[str, tuple[object, ...]]] = {
    "resources": (
        {"requests": {"cpu": "1000m"}},
        {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"memory": "1.5Gi"}},
        REMOVED,
    ),
    "drain": ({"timeout": "10s"}, {"timeout": "1500ms"}, REMOVED),
    "template": (
        {"metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x"}}},
        {
            "spec": {
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "containers": [
                    {"name": "triptych", "env": [{"name": "A", "value": ""}]},
                    {"name": "sidecar", "image": "sidecar:1", "tty": False},
                ],
            }
        },
        {"spec": {"topologySpreadConstraints": None, "hostUsers": False}},
        REMOVED,
    ),
}


@dataclass(frozen=True)
class Walk:
    """Resources as they follow each other, and before which of them to wait for all to be ready."""

    resources: tuple[dict[str, Any], ...]
    patient: tuple[bool, ...]


@st.composite
def walks(draw: Draw) -> Walk:
    """A resource of some kind, and two to six edits of it."""
    body = manifest(topology=draw(st.sampled_from(list(Topology))).value)
    edits = [draw(st.integers(0, 3)), *[1] * draw(st.integers(2, 6))]
    resources = []
    for count in edits:
        body = deepcopy(body)
        for _ in range(count):
            draw(st.sampled_from(EDITS))(draw, body["spec"])
        resources.append(body)
    patient = draw(st.tuples(*[st.booleans()] * len(resources)))
    return Walk(tuple(resources), patient)


def change_topology(draw: Draw, spec: Spec) -> None:
    """Takes another topology, and the tiers away that it has not."""
    topology = draw(st.sampled_from([one for one in Topology if one != spec["topology"]]))
    spec["topology"] = topology.value
    given = spec.get("tiers", {})
    spec["tiers"] = {name: tier for name, tier in given.items() if name in topology.tiers}
    if topology is Topology.FUSED:
        spec.get("degraded", {}).pop("onEncoderLoss", None)


def fix_replicas(draw: Draw, spec: Spec) -> None:
    """Gives a tier a number of pods."""
    tier = _tier(draw, spec)
    tier.pop("autoscaling", None)
    tier["replicas"] = draw(st.integers(1, 3))


def autoscale(draw: Draw, spec: Spec) -> None:
    """Gives a tier an autoscaler, or another one."""
    name = draw(st.sampled_from(_tiers(spec)))
    tier = spec.setdefault("tiers", {}).setdefault(name.value, {})
    tier.pop("replicas", None)
    least = draw(st.integers(1, 2))
    signals = draw(st.lists(st.sampled_from(SIGNALS[name]), max_size=2, unique=True))
    tier["autoscaling"] = {
        "min": least,
        "max": draw(st.integers(least, 3)),
        "metrics": [_metric(one) for one in signals],
        **draw(st.sampled_from([{}, {"behavior": {"scaleUp": {"selectPolicy": "Min"}}}])),
    }


def _metric(signal: Signal) -> dict[str, Any]:
    external = {"external": {"name": "depth"}} if signal is Signal.EXTERNAL else {}
    return {"signal": signal.value, "target": 1, **external}


def stop_autoscaling(draw: Draw, spec: Spec) -> None:
    """Takes the autoscaler of a tier away, if it has one."""
    _tier(draw, spec).pop("autoscaling", None)


def remove_tier(draw: Draw, spec: Spec) -> None:
    """Leaves a tier to its defaults."""
    spec.get("tiers", {}).pop(draw(st.sampled_from(_tiers(spec))).value, None)


def change_tier(draw: Draw, spec: Spec) -> None:
    """Gives a field of a tier another value, or none."""
    name = draw(st.sampled_from(sorted(TIER_FIELDS)))
    _set(_tier(draw, spec), name, draw(st.sampled_from(TIER_FIELDS[name])))


def change_field(draw: Draw, spec: Spec) -> None:
    """Gives a field of the whole service another value, or none."""
    part, name = draw(st.sampled_from(sorted(FIELDS)))
    _set(spec.setdefault(part, {}), name, draw(st.sampled_from(FIELDS[part, name])))


def change_loss(draw: Draw, spec: Spec) -> None:
    """Says what happens when encoders are lost, where there are any."""
    if spec["topology"] != Topology.FUSED:
        choices = ["EncodeInline", "Queue", REMOVED]
        _set(spec.setdefault("degraded", {}), "onEncoderLoss", draw(st.sampled_from(choices)))


EDITS: Final[tuple[Edit, ...]] = (
    change_topology,
    change_topology,
    fix_replicas,
    autoscale,
    autoscale,
    stop_autoscaling,
    remove_tier,
    change_tier,
    change_tier,
    change_field,
    change_loss,
)


def _tiers(spec: Spec) -> list[Tier]:
    return list(TOPOLOGY_TIERS[Topology(spec["topology"])])


def _tier(draw: Draw, spec: Spec) -> dict[str, Any]:
    name = draw(st.sampled_from(_tiers(spec))).value
    tier: dict[str, Any] = spec.setdefault("tiers", {}).setdefault(name, {})
    return tier


def _set(parent: dict[str, Any], name: str, value: object) -> None:
    if value is REMOVED:
        parent.pop(name, None)
    else:
        parent[name] = deepcopy(value)
