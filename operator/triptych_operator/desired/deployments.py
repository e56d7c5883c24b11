"""One Deployment per tier."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Final

from triptych_contract.names import Env, Port, Tier

from triptych_operator.api.scalars import parse_seconds
from triptych_operator.api.service import MultimodalService
from triptych_operator.api.tiers import Resources
from triptych_operator.desired import canonical, configmaps, naming, volumes
from triptych_operator.desired.merge import merge
from triptych_operator.desired.platform import Platform
from triptych_operator.json_values import Json, JsonObject

START_SECONDS: Final = 1800  # for a model to be downloaded and loaded
_PROBE_SECONDS: Final = 5
_PRE_STOP_SECONDS: Final = 5  # for callers to learn that this pod goes, before it stops listening
_LAST_SECONDS: Final = 10  # for the process to end after its drain, before it is killed
_USER: Final = 65532
_REVISION_DIGITS: Final = 16  # tells revisions of one tier apart, and fits a label


def deployment(
    service: MultimodalService, tier: Tier, platform: Platform, config: str
) -> JsonObject:
    """The Deployment of ``tier``. Without ``replicas`` when an autoscaler owns the number.

    Args:
        config: digest of the tier's configuration.
    """
    spec = service.spec.tier(tier)
    fixed = {} if spec.scales else {"replicas": spec.initial_replicas}
    # New pods are ready before old ones go, so there must be room for both.
    surge: Json = 1 if tier is Tier.GATEWAY else f"{service.spec.rollout.surge_percent}%"
    made: JsonObject = {
        **fixed,
        "selector": {"matchLabels": {**naming.selector(service, tier)}},
        "revisionHistoryLimit": 3,
        "progressDeadlineSeconds": START_SECONDS + 60,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0},
        },
        "template": pod_template(service, tier, platform, config),
    }
    metadata = naming.metadata(service, naming.child(service, tier), tier)
    if tier is Tier.GATEWAY:
        metadata["annotations"] = {naming.TOPOLOGY: service.spec.topology.value}
    if tier is Tier.ENCODER and service.spec.encoder_rests:
        metadata["annotations"] = {naming.MAY_REST: "true"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": made}


def pod_template(
    service: MultimodalService, tier: Tier, platform: Platform, config: str
) -> JsonObject:
    """The tier's pods, with the user's changes merged over ours; our labels stay. They are labelled
    with the template's own revision, so that any pod tells which one it was made from."""
    template = _unlabelled_template(service, tier, platform, config)
    label: JsonObject = {"metadata": {"labels": {naming.REVISION: _revision(template)}}}
    return merge(template, label)


def revision(service: MultimodalService, tier: Tier, platform: Platform) -> str:
    """The revision of the pods that ``tier`` should have."""
    config = configmaps.digest(configmaps.configuration(service, tier, platform))
    return _revision(_unlabelled_template(service, tier, platform, config))


def _unlabelled_template(
    service: MultimodalService, tier: Tier, platform: Platform, config: str
) -> JsonObject:
    given = service.spec.tier(tier).template
    return {
        "metadata": {
            "labels": {**given.metadata.labels, **naming.labels(service, tier)},
            "annotations": {**given.metadata.annotations, naming.CONFIG_DIGEST: config},
        },
        "spec": canonical.pod_spec(merge(_pod_spec(service, tier, platform), {**given.spec})),
    }


def _revision(template: JsonObject) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]


def _pod_spec(service: MultimodalService, tier: Tier, platform: Platform) -> JsonObject:
    drain = math.ceil(parse_seconds(service.spec.tier(tier).drain.timeout))
    gates: list[Json] = [{"conditionType": naming.IN_SERVICE}]
    return {
        **({} if tier is Tier.GATEWAY else {"readinessGates": gates}),
        "serviceAccountName": service.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _PRE_STOP_SECONDS + drain + _LAST_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {**naming.selector(service, tier)}},
            }
        ],
        "containers": [_container(service, tier, platform)],
        "volumes": volumes.volumes(service, tier),
    }


def _container(service: MultimodalService, tier: Tier, platform: Platform) -> JsonObject:
    return {
        "name": naming.CONTAINER,
        "image": platform.image_of(service),
        "imagePullPolicy": platform.pull_policy,
        "command": _command(service, tier),
        "env": _environment(),
        "ports": _ports(tier),
        "resources": _resources(service.spec.tier(tier).resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # The last lines of the log become the reason that the status gives for a crash.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"sleep": {"seconds": _PRE_STOP_SECONDS}}},
        **_probes(tier),
        "volumeMounts": volumes.mounts(service, tier),
    }


def _command(service: MultimodalService, tier: Tier) -> list[Json]:
    if tier is Tier.GATEWAY:
        return ["triptych-gateway"]
    return ["triptych-worker", tier.value, *service.spec.engine.args]


def _environment() -> list[Json]:
    return [
        {"name": Env.CONFIG, "value": str(volumes.CONFIG_FOLDER / configmaps.KEY)},
        {"name": Env.POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HF_HOME", "value": str(volumes.DOWNLOADS_FOLDER)},
        {"name": "HOME", "value": str(volumes.TEMPORARY_FOLDER)},
    ]


def _ports(tier: Tier) -> list[Json]:
    ports = {"grpc": Port.GRPC, "metrics": Port.METRICS}
    if tier is Tier.GATEWAY:
        ports = {"http": Port.HTTP, **ports}
    return [{"name": name, "containerPort": port} for name, port in ports.items()]


def _resources(resources: Resources) -> JsonObject:
    made: JsonObject = {}
    if resources.requests:
        made["requests"] = {**resources.requests}
    if resources.limits:
        made["limits"] = {**resources.limits}
    return made


def _probes(tier: Tier) -> JsonObject:
    """Ready: it serves now. Alive: it answers at all, which a worker that loads or drains does."""
    ready: JsonObject
    alive: JsonObject
    if tier is Tier.GATEWAY:
        ready = {"httpGet": {"path": "/readyz", "port": "http"}}
        alive = {"httpGet": {"path": "/healthz", "port": "http"}}
        started = alive
    else:
        ready = started = {"grpc": {"port": Port.GRPC}}
        alive = {"httpGet": {"path": "/metrics", "port": "metrics"}}
    often: JsonObject = {"periodSeconds": _PROBE_SECONDS, "timeoutSeconds": 3}
    return {
        "startupProbe": {**started, **often, "failureThreshold": START_SECONDS // _PROBE_SECONDS},
        "readinessProbe": {**ready, **often, "failureThreshold": 2},
        "livenessProbe": {
            **alive,
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 6,
        },
    }
