"""Every name, label and selector of what belongs to a resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from triptych_contract.names import Port, Tier

from triptych_operator.api.autoscaling import Signal
from triptych_operator.api.service import API_VERSION, GROUP, KIND, MultimodalService
from triptych_operator.json_values import JsonObject

MANAGER: Final = "triptych"
OPERATOR_NAME: Final = "triptych-operator"  # app.kubernetes.io/name of the operator's own pods
CONTAINER: Final = "triptych"
CONFIG_DIGEST: Final = f"{GROUP}/config-digest"  # annotation: a changed configuration rolls pods
REVISION: Final = f"{GROUP}/revision"  # label: which pod template a pod was made from
FLUSH: Final = f"{GROUP}/flush-caches"  # annotation of a resource: asks for one flush per value
IN_SERVICE: Final = f"{GROUP}/in-service"  # condition of worker pods: the gate of a rollout
MAY_REST: Final = f"{GROUP}/may-rest"  # annotation: no pods at all are as it should be
TOPOLOGY: Final = f"{GROUP}/topology"  # annotation: which topology a gateway routes for
OPERATOR: Final = f"{GROUP}/operator"  # annotation of an account: whose operator made it
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"  # annotation of Kubernetes

NAME: Final = "app.kubernetes.io/name"
INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
NAMESPACE: Final = "kubernetes.io/metadata.name"  # of namespaces: the API server sets it

# Labels of what Prometheus has of a resource, and of one of its tiers.
PROMETHEUS_SERVICE: Final = "triptych_service"
PROMETHEUS_TIER: Final = "triptych_tier"

_SIGNAL_WORDS: Final = {
    Signal.IMAGES_PER_SECOND: "images_per_second",
    Signal.VISUAL_TOKENS_PER_SECOND: "visual_tokens_per_second",
    Signal.INPUT_TOKENS_PER_SECOND: "input_tokens_per_second",
    Signal.QUEUE_WAIT: "queue_wait_seconds",
    Signal.STAGE_UTILIZATION: "stage_utilization",
    Signal.BACKLOG_TOKENS: "backlog_tokens",
    Signal.RUNNING_REQUESTS: "running_requests",
    Signal.KV_UTILIZATION: "kv_utilization",
    Signal.TIME_PER_OUTPUT_TOKEN: "time_per_output_token_seconds",
    Signal.TIME_TO_FIRST_TOKEN: "time_to_first_token_seconds",
    Signal.PICTURE_REQUESTS_PER_SECOND: "picture_requests_per_second",
    Signal.REQUESTS_WITHOUT_ENCODER: "requests_without_encoder",
}


def child(service: MultimodalService, tier: Tier) -> str:
    """Name of everything that belongs to one tier: ``shapes-encoder``."""
    return child_of(service.metadata.name, tier)


def child_of(service: str, tier: Tier) -> str:
    """The same, by the name of the resource."""
    return f"{service}-{tier}"


def selector(service: MultimodalService, tier: Tier) -> dict[str, str]:
    """Labels that select the pods of one tier. They never change: a Deployment's are immutable."""
    return {NAME: MANAGER, INSTANCE: service.metadata.name, COMPONENT: tier.value}


def labels(service: MultimodalService, tier: Tier | None = None) -> dict[str, str]:
    """Labels of everything that belongs to the resource, or to one of its tiers."""
    own = {NAME: MANAGER, INSTANCE: service.metadata.name}
    if tier is not None:
        own = selector(service, tier)
    return {**own, PART_OF: MANAGER, MANAGED_BY: MANAGER}


def operator_selector() -> dict[str, str]:
    """Labels that select the operator's own pods."""
    return {NAME: OPERATOR_NAME}


def metadata(service: MultimodalService, name: str, tier: Tier | None = None) -> JsonObject:
    """Metadata of a child. Owned by the resource, so that the cluster deletes it with its owner,
    whether or not the operator runs; a resource that is not in a cluster owns nothing."""
    made: JsonObject = {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": {**labels(service, tier)},
    }
    if service.metadata.uid:
        made["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": service.metadata.name,
                "uid": service.metadata.uid,
                "controller": True,
            }
        ]
    return made


def tier_of(child: Mapping[str, Any]) -> Tier | None:
    """The tier that a child or pod belongs to; ``None`` when it is of the whole resource."""
    name = child["metadata"]["labels"].get(COMPONENT)
    return Tier(name) if name is not None else None


def dns_name(service: MultimodalService, tier: Tier) -> str:
    """Where the tier's Service is found inside the cluster."""
    return f"{child(service, tier)}.{service.metadata.namespace}.svc"


def url(service: MultimodalService) -> str:
    """Where clients in the cluster reach the gateway; the same in every topology."""
    return f"http://{dns_name(service, Tier.GATEWAY)}:{Port.HTTP}"


def external_metric(tier: Tier, signal: Signal) -> str:
    """Name of a signal in the external metrics API, such as ``triptych_encoder_backlog_tokens``.

    Raises:
        KeyError: the signal is none of Triptych's own, and has no such name.
    """
    return f"triptych_{tier}_{_SIGNAL_WORDS[signal]}"
