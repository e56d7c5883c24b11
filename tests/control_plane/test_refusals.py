"""What the API server refuses is told in its own words, stops nothing else, and heals."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.children import COLLECTIONS
from cluster.control_plane import ControlPlane
from cluster.kubectl import Cluster
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.served import (
    SECONDS,
    Served,
    namespace_of_its_own,
    no_more_deployments,
    served,
)

POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
RULES: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles"
GRANTS: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"
RBAC_GROUP: Final = "rbac.authorization.k8s.io"
RBAC: Final = f"{RBAC_GROUP}/v1"


async def names(one: Served, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in await one.api.items(one.path(kind))}


async def test_an_exceeded_quota_is_told_and_healed(cluster: Cluster, tmp_path: Path) -> None:
    async with served(cluster, tmp_path) as one:
        quotas = f"/api/v1/namespaces/{one.namespace}/resourcequotas"
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few"},
            "spec": {"hard": {"count/deployments.apps": "2"}},
        }
        await one.api.create(quotas, quota)

        async def counted() -> bool:
            return "used" in (await one.api.get(f"{quotas}/few")).get("status", {})

        await eventually(counted, "the quota in force", seconds=SECONDS)
        await one.apply()
        found = await one.until("Stalled", "True", "Forbidden")
        assert "exceeded quota: few" in found["message"]
        assert (await one.condition("Ready"))["message"] == found["message"]
        assert await one.absent("Reconciling")
        assert len(await names(one, "Deployment")) == 2, "as many as the quota allows"
        assert len(await names(one, "Service")) == 4
        columns = {tier["name"]: tier["pods"] for tier in (await one.resource())["status"]["tiers"]}
        assert set(columns.values()) <= {"0/1", "1/1"}
        await one.api.delete(f"{quotas}/few")
        await one.until("Ready", "True")
        assert await one.absent("Stalled")


@asynccontextmanager
async def policy(one: Served, expression: str, message: str) -> AsyncIterator[None]:
    """A policy on the Deployments of the namespace, in force within the block."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    spec = {
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": one.namespace}},
        },
        "validations": [{"expression": expression, "message": message}],
    }
    kind = "ValidatingAdmissionPolicy"
    version = "admissionregistration.k8s.io/v1"
    metadata = {"name": name}
    made: dict[str, Any] = {"apiVersion": version, "metadata": metadata}
    await one.api.create(POLICIES, {**made, "kind": kind, "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    await one.api.create(BINDINGS, {**made, "kind": f"{kind}Binding", "spec": bound})
    try:
        yield
    finally:
        await one.api.delete(f"{BINDINGS}/{name}")
        await one.api.delete(f"{POLICIES}/{name}")


async def test_an_admission_policy_that_refuses_a_child_is_told_and_healed(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path) as one:
        expression = "object.metadata.name != 'shapes-decode'"
        async with policy(one, expression, "no decoding on Sundays"):
            await eventually(lambda: no_more_deployments(one), "the policy", seconds=SECONDS)
            await one.apply()
            found = await one.until("Stalled", "True", "Invalid")
            assert "no decoding on Sundays" in found["message"]
            assert "shapes-decode" in found["message"]
            assert len(await names(one, "Deployment")) == 3, "the other tiers go on"
            await one.apply("other")
            await one.until("Ready", "True", name="other")
        await one.until("Ready", "True")
        told = await one.events()
        assert told.count(("Warning", "Invalid")) == 1


async def test_a_template_that_no_pod_can_be_made_of_is_told_and_healed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The schema takes parts of a PodSpec as they are: the API server is the judge."""
    async with served(cluster, tmp_path) as one:
        await one.apply()
        await one.until("Ready", "True")
        before = await one.api.items(one.path("Deployment"))
        odd = {"spec": {"priorityClassName": "absent", "restartPolicy": "Sometimes"}}
        await one.apply(tiers__decode__template=odd)
        found = await one.until("Stalled", "True", "Invalid")
        assert "restartPolicy" in found["message"]
        for item in before:
            after = await one.api.get(one.path("Deployment", item["metadata"]["name"]))
            assert after["spec"] == item["spec"], "it still serves"
        await one.apply()
        await one.until("Ready", "True")


FOREIGN: dict[str, dict[str, Any]] = {
    "ConfigMap": {"apiVersion": "v1", "data": {"other": "x"}},
    "Service": {"apiVersion": "v1", "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}},
    "ServiceAccount": {"apiVersion": "v1"},
    "PodDisruptionBudget": {
        "apiVersion": "policy/v1",
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    },
}


async def test_objects_of_others_stay_as_they_are_and_are_told_by_name(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path) as one:
        tried = {"ServiceAccount": "shapes", "ConfigMap": "shapes-decode"}
        tried |= {"Service": "shapes-gateway", "PodDisruptionBudget": "shapes-prefill"}
        for kind, name in tried.items():
            made = {**FOREIGN[kind], "kind": kind, "metadata": {"name": name}}
            theirs = await one.api.create(one.path(kind), made)
            await one.apply()
            found = await one.until("Ready", "False", "NameTaken")
            assert f"{kind} {one.namespace}/{name} exists and belongs" in found["message"]
            await one.apply("other")
            await one.until("Ready", "True", name="other")
            assert own(await one.api.get(one.path(kind, name))) == own(theirs)
            await one.api.delete(one.path(kind, name))
            await one.until("Ready", "True")
            await one.api.delete(one.path("MultimodalService", "shapes"))
            await eventually(lambda: _is_gone(one), "its end", seconds=SECONDS)


def own(item: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to whoever made an object: not its status, which controllers write."""
    kept = {"resourceVersion": None, "managedFields": None}
    managers = {entry["manager"] for entry in item["metadata"].get("managedFields", ())}
    assert not [name for name in managers if "triptych" in name]
    return {**item, "status": None, "metadata": {**item["metadata"], **kept}}


async def _is_gone(one: Served) -> bool:
    kinds = [kind for kind in COLLECTIONS if kind != "HorizontalPodAutoscaler"]
    lists = await asyncio.gather(*(names(one, kind) for kind in kinds))
    return not any(name.startswith("shapes") for found in lists for name in found)


def role(namespace: str, *, without: str) -> dict[str, Any]:
    """What the operator needs, but for writing one kind."""
    resources = [path.rpartition("/")[2] for path in COLLECTIONS.values()]
    seen = [*resources, "pods", "multimodalservices"]
    read = ["get", "list", "watch"]
    write = ["create", "patch", "update", "delete"]
    rules = [
        {
            "apiGroups": ["*"],
            "resources": seen,
            "verbs": read,
        },
        {
            "apiGroups": ["*"],
            "resources": [one for one in resources if one != without],
            "verbs": write,
        },
        {
            "apiGroups": ["*"],
            "resources": ["multimodalservices/status", "pods/status", "events"],
            "verbs": write,
        },
    ]
    metadata = {"name": "operator", "namespace": namespace}
    return {"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules}


@pytest.mark.parametrize("without", ["poddisruptionbudgets"])
async def test_a_right_that_is_missing_is_told_and_healed(
    control_plane: ControlPlane, tmp_path: Path, without: str
) -> None:
    user = f"limited-{uuid.uuid4().hex[:6]}"
    kubeconfig = control_plane.kubeconfig_for(user)
    async with served(control_plane, tmp_path, kubeconfig=kubeconfig) as one:
        subject = {"kind": "User", "name": user, "apiGroup": RBAC_GROUP}
        granted = {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": "operator"},
            "subjects": [subject],
            "roleRef": {
                "kind": "Role",
                "name": "operator",
                "apiGroup": RBAC_GROUP,
            },
        }
        await one.api.create(RULES.format(one.namespace), role(one.namespace, without=without))
        await one.api.create(GRANTS.format(one.namespace), granted)
        await one.apply()
        found = await one.until("Stalled", "True", "Forbidden")
        assert f'cannot patch resource "{without}"' in found["message"]
        assert user in found["message"]
        assert len(await names(one, "Service")) == 4
        path = f"{RULES.format(one.namespace)}/operator"
        await one.api.replace(path, role(one.namespace, without=""))
        await one.until("Ready", "True")


async def test_several_namespaces_are_served_and_no_other(cluster: Cluster, tmp_path: Path) -> None:
    async with (
        namespace_of_its_own(cluster) as (api, first),
        namespace_of_its_own(cluster) as (_, second),
        namespace_of_its_own(cluster) as (_, third),
        OperatorProcess(cluster.kubeconfig, tmp_path / "log", first, second) as operator,
    ):
        one, two, left_out = (Served(api, name, operator) for name in (first, second, third))
        for each in (left_out, one, two):
            await each.apply()
        for each in (one, two):
            await each.until("Ready", "True")
        assert (await left_out.resource())["status"] == {"observedGeneration": -1}
        assert await names(left_out, "Deployment") == set()
