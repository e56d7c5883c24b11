from typing import Any

import pytest
from mms_builders import manifest, service
from pydantic import ValidationError
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier, Topology
from triptych_operator.api.manifests import validate_service

AUTOSCALING = {"max": 4, "metrics": [{"signal": "QueueWait", "target": "500m"}]}


def test_a_minimal_manifest_has_one_pod_of_each_tier() -> None:
    spec = service().spec
    assert [spec.tier(tier).initial_replicas for tier in spec.topology.tiers] == [1, 1, 1, 1]


def test_an_autoscaled_tier_begins_with_its_minimum() -> None:
    given = service(tiers__encoder__autoscaling={**AUTOSCALING, "min": 3})
    assert given.spec.encoder.initial_replicas == 3


def test_a_resource_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        service().spec.model.revision = "2"  # type: ignore[misc]


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("tier", list(Tier))
def test_a_tier_is_taken_in_the_topologies_that_have_it_and_nowhere_else(
    topology: Topology, tier: Tier
) -> None:
    body = manifest(topology=topology.value, **{f"tiers__{tier}__replicas": 2})
    if tier in topology.tiers:
        assert validate_service(body, "test").spec.tier(tier).initial_replicas == 2
    else:
        with pytest.raises(InvalidRequest, match=f"topology {topology} has the tiers"):
            validate_service(body, "test")


@pytest.mark.parametrize(
    ("resources", "device"),
    [
        ({}, "cpu"),
        ({"limits": {"cpu": 2}}, "cpu"),
        ({"limits": {"nvidia.com/gpu": 0}}, "cpu"),
        ({"limits": {"nvidia.com/gpu": 1}}, "cuda"),
    ],
)
def test_a_tier_with_a_gpu_runs_on_it(resources: dict[str, Any], device: str) -> None:
    assert service(tiers__prefill__resources=resources).spec.prefill.device == device


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "replicas beside autoscaling",
        {"tiers__encoder": {"replicas": 1, "autoscaling": AUTOSCALING}},
        "spec.tiers.encoder: give either replicas .* or autoscaling, not both",
    ),
    (
        "more at least than at most",
        {"tiers__encoder__autoscaling": {**AUTOSCALING, "min": 5}},
        "spec.tiers.encoder.autoscaling: min must not exceed max",
    ),
    (
        "replicas beside autoscaling that acts",
        {"tiers__encoder": {"replicas": 2, "autoscaling": {"max": 2}}},
        "spec.tiers.encoder: give either replicas .*Advise",
    ),
    (
        "an external metric without a name",
        {
            "tiers__decode__autoscaling": {
                "max": 2,
                "metrics": [{"signal": "External", "target": 1}],
            }
        },
        "autoscaling.metrics.0: signal External and external.name go together",
    ),
    (
        "encoders that rest while pictures are refused",
        {"tiers__encoder__autoscaling": {"max": 2, "scaleToZeroAfter": "10m"}},
        "set degraded.onEncoderLoss to Queue or EncodeInline",
    ),
    (
        "a ratio without bounds",
        {"balance": {"encoderPerPrefill": {}}},
        "spec.balance.encoderPerPrefill: a ratio without bounds says nothing",
    ),
    (
        "rest for a tier that every request needs",
        {"tiers__decode__autoscaling": {"max": 2, "scaleToZeroAfter": "10m"}},
        "spec.tiers.decode.autoscaling.scaleToZeroAfter: unknown field",
    ),
    (
        "a signal twice",
        {"tiers__encoder__autoscaling": {"max": 2, "metrics": AUTOSCALING["metrics"] * 2}},
        "each signal but External may be given once",
    ),
    (
        "a target of nothing",
        {
            "tiers__encoder__autoscaling": {
                "max": 2,
                "metrics": [{"signal": "QueueWait", "target": 0}],
            }
        },
        "metrics.0.target: not a quantity above 0",
    ),
    (
        "a signal that the tier does not measure",
        {"tiers__decode__autoscaling": AUTOSCALING},
        "spec.tiers.decode: tier decode scales on CPUUtilization, .*, RunningRequests",
    ),
    (
        "no replica",
        {"tiers__encoder__replicas": 0},
        "spec.tiers.encoder.replicas: .* or equal to 1",
    ),
    ("a number as text", {"tiers__encoder__replicas": "2"}, "must be a whole number.*no quotes"),
    ("a text as number", {"model__revision": 1}, "spec.model.revision: must be text.*in quotes"),
    ("no model", {"model": None}, "spec.model: required; add it"),
    ("an unknown topology", {"topology": "Split"}, "'Fused', 'EncodeSplit' or 'FullSplit'"),
    (
        "pixels the wrong way round",
        {"model__processor": {"minPixels": 9, "maxPixels": 4}},
        "spec.model.processor: minPixels must not exceed maxPixels",
    ),
    (
        "a nested processor parameter",
        {"model__processor": {"parameters": {"size": {"height": 4}}}},
        "spec.model.processor.parameters.size",
    ),
    (
        "encoders to lose where there are none",
        {"topology": "Fused", "degraded": {"onEncoderLoss": "Queue"}},
        "topology Fused has no encoder tier to lose",
    ),
    ("a misspelt field", {"modle": {}}, "spec.modle: unknown field; did you mean model?"),
    (
        "a misspelt field in a tier",
        {"tiers__encoder__replica": 2},
        "spec.tiers.encoder.replica: unknown field; did you mean replicas?",
    ),
    ("a python name", {"model__served_name": "x"}, "did you mean servedName?"),
    ("a size in no unit", {"tiers__encoder__cache": {"capacity": "1 GB"}}, "not a size"),
    ("a duration in no unit", {"tiers__encoder__drain": {"timeout": "60"}}, "not a duration"),
    ("an image with a space", {"engine__image": "a b"}, "not an image reference"),
    ("a header with a blank", {"media__tenants": {"header": "x tenant"}}, "name of a header"),
    ("a network with host bits", {"media__urlPolicy": {"allowNetworks": ["10.1.2.3/8"]}}, "CIDR"),
    ("another transport", {"transfer__transport": "rdma"}, "spec.transfer.transport"),
]


@pytest.mark.parametrize(
    ("changes", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_a_wrong_resource_is_refused_by_the_name_of_its_field(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        service(**changes)


@pytest.mark.parametrize(
    ("name", "right"),
    [("shapes", True), ("a", True), ("a" * 40, True), ("a" * 41, False), ("1a", False),
     ("A", False), ("a-", False), ("a.b", False), ("", False), ("ä", False)],
)  # fmt: skip
def test_a_name_must_do_for_the_services_that_are_named_after_it(name: str, right: bool) -> None:
    body = manifest() | {"metadata": {"name": name}}
    if right:
        assert validate_service(body, "test").metadata.name == name
    else:
        with pytest.raises(InvalidRequest, match=r"metadata\.name must be"):
            validate_service(body, "test")


def test_what_the_api_server_adds_is_no_error() -> None:
    body = manifest() | {"status": {"url": "x"}}
    body["metadata"] |= {"uid": "u", "resourceVersion": "1", "managedFields": [{}], "generation": 3}
    given = validate_service(body, "test")
    assert (given.metadata.uid, given.metadata.generation) == ("u", 3)
