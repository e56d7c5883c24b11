import json
from collections.abc import Iterator
from typing import Any

import pytest
from mms_builders import manifest, service
from triptych_contract.config import GatewayConfig, WorkerConfig
from triptych_contract.names import Tier, Topology
from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import AUTOSCALERS, KINDS, desired_state

PLATFORM = Platform(image="worker:1", operator_namespace="triptych-system")
SCALED = {"min": 2, "max": 4, "metrics": [{"signal": "CPUUtilization", "target": 50}]}


def state(resource: MultimodalService) -> list[Any]:
    made: list[Any] = desired_state(resource, PLATFORM)
    return made


def of(kind: str, tier: Tier, resource: MultimodalService) -> Any:
    [found] = [
        it
        for it in state(resource)
        if (it["kind"], it["metadata"]["name"]) == (kind, f"shapes-{tier}")
    ]
    return found


@pytest.mark.parametrize("topology", list(Topology))
def test_every_tier_of_the_topology_has_each_kind_once(topology: Topology) -> None:
    made = [(it["kind"], it["metadata"]["name"]) for it in state(service(topology=topology.value))]
    per_tier = [kind for kind in KINDS if kind != "ServiceAccount" and kind not in AUTOSCALERS]
    assert made == [
        ("ServiceAccount", "shapes"),
        *((kind, f"shapes-{tier}") for kind in per_tier for tier in topology.tiers),
    ]


def test_equal_resources_give_equal_bytes() -> None:
    assert json.dumps(state(service())) == json.dumps(state(service()))


def test_one_tiers_change_touches_no_other_tier() -> None:
    before, after = state(service()), state(service(tiers__decode__limits={"maxRunning": 3}))
    changed = [
        (old["kind"], old["metadata"]["name"])
        for old, new in zip(before, after, strict=True)
        if old != new
    ]
    assert changed == [("ConfigMap", "shapes-decode"), ("Deployment", "shapes-decode")]


def test_the_gateways_address_is_the_same_in_every_topology() -> None:
    services = {
        topology: of("Service", Tier.GATEWAY, service(topology=topology.value))
        for topology in Topology
    }
    assert services[Topology.FUSED] == services[Topology.ENCODE_SPLIT]
    assert services[Topology.FUSED] == services[Topology.FULL_SPLIT]
    assert naming.url(service()) == "http://shapes-gateway.default.svc:8000"


def test_workers_are_found_one_by_one_behind_headless_services() -> None:
    worker = of("Service", Tier.ENCODER, service())["spec"]
    assert (worker["clusterIP"], worker["ports"][0]["port"]) == ("None", 50051)
    assert "clusterIP" not in of("Service", Tier.GATEWAY, service())["spec"]


@pytest.mark.parametrize("topology", list(Topology))
def test_every_selector_selects_the_pods_of_its_own_tier_alone(topology: Topology) -> None:
    resource = service(topology=topology.value)
    pods = {
        tier: of("Deployment", tier, resource)["spec"]["template"]["metadata"]["labels"]
        for tier in topology.tiers
    }
    for tier in topology.tiers:
        selectors = [
            of("Service", tier, resource)["spec"]["selector"],
            of("Deployment", tier, resource)["spec"]["selector"]["matchLabels"],
            of("PodDisruptionBudget", tier, resource)["spec"]["selector"]["matchLabels"],
            of("NetworkPolicy", tier, resource)["spec"]["podSelector"]["matchLabels"],
        ]
        for selector in selectors:
            assert [at for at, labels in pods.items() if selector.items() <= labels.items()] == [
                tier
            ]


def test_a_resource_in_a_cluster_owns_all_of_its_children_in_its_namespace() -> None:
    body = manifest()
    body["metadata"] |= {"uid": "u-1", "namespace": "vision"}
    for child in state(validate_service(body, "test")):
        [owner] = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == (
            "MultimodalService", "u-1", True
        )  # fmt: skip
        assert child["metadata"]["namespace"] == "vision"


def test_a_resource_that_is_in_no_cluster_owns_nothing() -> None:
    assert all("ownerReferences" not in child["metadata"] for child in state(service()))


def test_processes_can_read_what_the_config_maps_hold() -> None:
    resource = service()
    for tier in resource.spec.topology.tiers:
        text = of("ConfigMap", tier, resource)["data"]["config.json"]
        kind = GatewayConfig if tier is Tier.GATEWAY else WorkerConfig
        assert kind.model_validate_json(text).model.source == "builtin://shapes"
    gateway = GatewayConfig.model_validate_json(
        of("ConfigMap", Tier.GATEWAY, resource)["data"]["config.json"]
    )
    assert gateway.prefill.dns == "shapes-prefill.default.svc:50051"
    assert gateway.fused.dns == ""


def test_the_number_of_pods_has_one_owner() -> None:
    fixed, scaled = service(tiers__encoder__replicas=3), service(tiers__encoder__autoscaling=SCALED)
    assert of("Deployment", Tier.ENCODER, fixed)["spec"]["replicas"] == 3
    assert "replicas" not in of("Deployment", Tier.ENCODER, scaled)["spec"]
    autoscaler = of("HorizontalPodAutoscaler", Tier.ENCODER, scaled)["spec"]
    assert (autoscaler["minReplicas"], autoscaler["maxReplicas"]) == (2, 4)
    assert autoscaler["scaleTargetRef"]["name"] == "shapes-encoder"
    assert not [it for it in state(fixed) if it["kind"] == "HorizontalPodAutoscaler"]


def test_a_pod_has_the_time_to_drain() -> None:
    resource = service(tiers__decode__drain={"timeout": "2m"})
    pod = of("Deployment", Tier.DECODE, resource)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    notice = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= notice + 120


def test_the_users_changes_come_through_but_not_over_our_labels() -> None:
    template = {
        "metadata": {"labels": {naming.COMPONENT: "mine", "team": "a"}},
        "spec": {"nodeSelector": {"gpu": "big"}},
    }
    resource = service(tiers__prefill__template=template)
    pod = of("Deployment", Tier.PREFILL, resource)["spec"]["template"]
    assert pod["metadata"]["labels"][naming.COMPONENT] == "prefill"
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["spec"]["nodeSelector"] == {"gpu": "big"}
    assert pod["spec"]["containers"][0]["name"] == "triptych"


def test_every_pod_keeps_to_the_restricted_standard() -> None:
    for tier in Topology.FULL_SPLIT.tiers:
        pod = of("Deployment", tier, service())["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["automountServiceAccountToken"] is False
        kinds = {key for volume in pod["volumes"] for key in volume if key != "name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim"}


def test_a_claim_with_model_and_encoder_is_mounted_once_where_the_configuration_says() -> None:
    resource = service(
        model__source="pvc://models/language/7b",
        model__encoder={"source": "pvc://models/vision/2", "revision": "2"},
    )
    pod = of("Deployment", Tier.ENCODER, resource)["spec"]["template"]["spec"]
    [claim] = [it for it in pod["volumes"] if "persistentVolumeClaim" in it]
    [mount] = [it for it in pod["containers"][0]["volumeMounts"] if it["name"] == claim["name"]]
    assert claim["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert mount == {
        "name": "models-0", "mountPath": "/var/lib/triptych/models/models", "readOnly": True
    }  # fmt: skip
    text = of("ConfigMap", Tier.ENCODER, resource)["data"]["config.json"]
    model = WorkerConfig.model_validate_json(text).model
    assert model.source == "file:///var/lib/triptych/models/models/language/7b"


def edges(resource: MultimodalService) -> Iterator[tuple[str, str, int | None]]:
    """(from, to, port) of every edge that the policies open; None is every port."""
    for policy in (it for it in state(resource) if it["kind"] == "NetworkPolicy"):
        to = policy["spec"]["podSelector"]["matchLabels"][naming.COMPONENT]
        for rule in policy["spec"]["ingress"]:
            ports = [port["port"] for port in rule.get("ports", [])] or [None]
            for peer in rule.get("from", [{}]):
                labels = peer.get("podSelector", {}).get("matchLabels", {})
                who = labels.get(naming.COMPONENT) or labels.get(naming.NAME) or "anybody"
                yield from ((who, to, port) for port in ports)


def test_only_the_edges_of_a_requests_path_are_open() -> None:
    opened = set(edges(service(transfer={"transport": "grpc"})))
    tiers = ("encoder", "prefill", "decode", "gateway")
    assert opened == {
        ("anybody", "gateway", 8000),
        *(("anybody", tier, 9090) for tier in tiers),
        *(("triptych-operator", tier, 50051) for tier in tiers),
        *(("gateway", tier, 50051) for tier in tiers[:3]),
        ("encoder", "encoder", 50051),
        ("prefill", "encoder", 50051),
        ("fused", "encoder", 50051),
        ("decode", "prefill", 50051),
    }


def of_operator(platform: Platform) -> list[Any]:
    """Who else than the pods of the resource reaches the port of a stage."""
    made: list[Any] = desired_state(service(transfer={"transport": "grpc"}), platform)
    return [
        peer
        for policy in made
        if policy["kind"] == "NetworkPolicy"
        for rule in policy["spec"]["ingress"]
        if rule["ports"] == [{"protocol": "TCP", "port": 50051}]
        for peer in rule["from"]
        if naming.INSTANCE not in peer["podSelector"]["matchLabels"]
    ]


def test_the_operators_labels_open_a_stage_in_the_operators_namespace_alone() -> None:
    only = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "triptych-system"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "triptych-operator"}},
    }
    assert of_operator(PLATFORM) == [only] * 4


def test_where_the_operator_is_no_pod_no_labels_open_a_stage() -> None:
    assert of_operator(Platform(image="worker:1")) == []


def test_fused_workers_fetch_from_encoders_and_from_each_other() -> None:
    opened = set(edges(service(topology="EncodeSplit", transfer={"transport": "grpc"})))
    tensors = {edge for edge in opened if edge[0] == "fused"}
    assert tensors == {("fused", "encoder", 50051), ("fused", "fused", 50051)}


def test_a_transport_that_chooses_its_ports_may_use_them_between_its_two_ends() -> None:
    every_port = {edge for edge in edges(service()) if edge[2] is None}
    assert every_port == {
        ("encoder", "encoder", None),
        ("prefill", "encoder", None),
        ("fused", "encoder", None),
        ("decode", "prefill", None),
    }


@pytest.mark.parametrize("tier", [Tier.ENCODER, Tier.FUSED])
def test_a_tier_of_two_topologies_is_the_same_in_both(tier: Tier) -> None:
    both = [topology for topology in Topology if tier in topology.tiers]
    kinds = [kind for kind in KINDS if kind != "ServiceAccount" and kind not in AUTOSCALERS]
    first, second = (
        [of(kind, tier, service(topology=topology.value)) for kind in kinds] for topology in both
    )
    assert first == second


def test_only_the_tiers_of_a_step_are_built() -> None:
    made = desired_state(service(), PLATFORM, (Tier.ENCODER,))
    names = {str(it["metadata"]["name"]) for it in made}  # type: ignore[index,call-overload]
    assert names == {"shapes", "shapes-encoder"}
