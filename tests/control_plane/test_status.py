"""What a status says on a real API server: causes by tier, flips, Events, columns, replicas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from cluster.api import Object
from cluster.audit import Write
from cluster.children import PODS
from cluster.control_plane import ControlPlane
from cluster.kubectl import Cluster
from cluster.kwok import LAST_WORDS, PLAYS, Plays
from cluster.operator_process import IMAGE
from cluster.waiting import eventually
from control_plane.faults.history import Change, recorded
from control_plane.served import SECONDS, Served, conditions, no_more_deployments, served

STATUS: Final = Write("patch", "multimodalservices", "status")
SCALED: Final = {"min": 2, "max": 4, "metrics": [{"signal": "RunningRequests", "target": "8"}]}
DECODE: Final = "shapes-decode"


@pytest.fixture
async def one(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(cluster, tmp_path) as made:
        yield made


def playing(plays: Plays, **annotations: str) -> dict[str, Any]:
    """A template of pods that play something."""
    return {"metadata": {"annotations": {PLAYS: plays.value, **annotations}}}


async def test_causes_are_told_by_tier_and_pass(one: Served) -> None:
    await one.apply(tiers__decode__template=playing(Plays.IMAGE_PULL))
    found = await one.until("DecodeReady", "False", "ImagePullBackOff")
    assert found["message"].startswith(f"image {IMAGE}: ")
    stalled = await one.until("Stalled", "True", "ImagePullBackOff")
    assert stalled["message"] == f"decode: {found['message']}"
    await one.until("EncoderReady", "True", "PodsReady")

    words = {LAST_WORDS: "torch: out of memory"}
    await one.apply(tiers__decode__template=playing(Plays.CRASH_LOOP, **words))
    found = await one.until("DecodeReady", "False", "CrashLoopBackOff")
    assert found["message"].startswith("container triptych keeps ending (")
    assert found["message"].endswith(": torch: out of memory")
    await one.until("Stalled", "True", "CrashLoopBackOff")

    await one.apply(tiers__decode__resources={"requests": {"cpu": "5000"}})
    found = await one.until("DecodeReady", "False", "Unschedulable")
    assert "Insufficient cpu" in found["message"]
    await one.until("Reconciling", "True", "RollingOut")
    assert await one.absent("Stalled"), "room may come by itself"

    await one.apply()
    await one.until("Ready", "True", "AllTiersReady")
    assert await one.absent("Reconciling")
    await one.told(
        ("Warning", "ImagePullBackOff"), ("Warning", "CrashLoopBackOff"), ("Normal", "Ready")
    )  # fmt: skip


async def only_pod(one: Served, tier: str) -> str:
    """The path of the one pod of a tier."""
    selector = f"?labelSelector=app.kubernetes.io/component={tier}"
    [pod] = await one.api.items(PODS.format(one.namespace) + selector)
    return f"{PODS.format(one.namespace)}/{pod['metadata']['name']}"


async def test_readiness_flips_with_the_pods_and_times_move_with_it(one: Served) -> None:
    await one.apply()
    first = await one.until("Ready", "True")
    encoder = await one.condition("EncoderReady")
    await asyncio.sleep(1.1)  # times have whole seconds
    pod = await only_pod(one, "decode")
    annotations = {PLAYS: Plays.NEVER_READY.value}
    await one.api.merge(pod, {"metadata": {"annotations": annotations}})
    # The Deployment's watch may tell before the pod's, and then the status says so first.
    told = "decode: 0 of 1 pods ready"
    lost = await one.until("Ready", "False", "TiersNotReady", message=told)
    assert lost["lastTransitionTime"] > first["lastTransitionTime"]
    assert (await one.condition("DecodeReady"))["lastTransitionTime"] == lost["lastTransitionTime"]
    await asyncio.sleep(1.1)
    await one.api.delete(pod)  # another takes its place
    again = await one.until("Ready", "True")
    assert again["lastTransitionTime"] > lost["lastTransitionTime"]
    assert await one.condition("EncoderReady") == encoder, "nothing happened to it"
    await one.told(("Normal", "Ready"), ("Normal", "TiersNotReady"), ("Normal", "Ready"))


def statuses(changes: Iterable[Change]) -> list[Mapping[str, Any]]:
    """Every version of the resource that an operator has seen."""
    resources = (one.body for one in changes if one.kind == "MultimodalService")
    return [body for body in resources if conditions(dict(body))]


async def test_every_status_ever_shown_keeps_the_rules(one: Served) -> None:
    """kstatus: at most one of Reconciling and Stalled, both absent when all is well."""
    async with recorded(one.api, one.namespace) as history:
        await one.apply()
        await one.until("Ready", "True")
        await one.apply(tiers__decode__template=playing(Plays.IMAGE_PULL))
        await one.until("Stalled", "True")
        await one.apply(topology="Fused")
        await one.until("Ready", "True")
        await eventually(lambda: one.absent("Reconciling"), "the end of it", seconds=SECONDS)
    shown = statuses(history.ordered())
    assert len(shown) > 5
    for body in shown:
        kept = conditions(dict(body))
        states = [kept.get(type_, {}).get("status") for type_ in ("Reconciling", "Stalled")]
        assert states in ([None, None], ["True", None], [None, "True"])
        ready = kept["Ready"]["status"] == "True"
        assert ready or states != [None, None], "what is not ready says why"
        assert not (ready and states == [None, "True"]), "what is stalled is not ready"
        assert body["status"]["observedGeneration"] <= body["metadata"]["generation"]
    for before, after in pairwise(shown):
        assert before["status"]["observedGeneration"] <= after["status"]["observedGeneration"]
        _times_move_with_flips(conditions(dict(before)), conditions(dict(after)))


def _times_move_with_flips(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for type_ in before.keys() & after.keys():
        old, new = before[type_], after[type_]
        if old["status"] == new["status"]:
            assert old["lastTransitionTime"] == new["lastTransitionTime"], type_


async def test_an_unchanged_resource_is_never_written(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    user = "operator-idle"
    kubeconfig = control_plane.kubeconfig_for(user, groups=("system:masters",))
    async with served(control_plane, tmp_path, kubeconfig=kubeconfig) as one:
        await one.apply(tiers__decode__autoscaling=SCALED)
        await one.until("Ready", "True")
        await eventually(lambda: _is_scaled(one), "the autoscaler's word", seconds=SECONDS)
        await one.until("Ready", "True")

        async def rests() -> bool:
            """More than one look of the autoscaler, which may have more to say, is no news."""
            since = control_plane.audit.position()
            await asyncio.sleep(3)
            return control_plane.audit.writes(since, user=user) == {}

        await eventually(rests, "an operator that writes nothing", seconds=SECONDS)
        since = control_plane.audit.position()
        await asyncio.sleep(25)  # more than one audit
        assert control_plane.audit.writes(since, user=user) == {}


async def _is_scaled(one: Served) -> bool:
    """The autoscaler has brought the tier to its minimum, and said that it cannot read more."""
    tiers = {tier["name"]: tier for tier in (await one.resource())["status"]["tiers"]}
    return tiers["decode"]["pods"] == "2/2" and bool(tiers["decode"]["limitedBy"])


def replicas(changes: Iterable[Change], name: str) -> list[int]:
    """The numbers of pods that a Deployment has asked for, in order."""
    asked = [
        int(one.body["spec"]["replicas"])
        for one in changes
        if one.kind == "Deployment" and one.body["metadata"]["name"] == name and not one.deleted
    ]
    return [asked[0], *(after for before, after in pairwise(asked) if after != before)]


async def test_replicas_change_hands_without_a_dip(one: Served) -> None:
    async def decode() -> Object:
        return await one.api.get(one.path("Deployment", DECODE))

    async def scaled_by_others() -> bool:
        """The autoscaler's own act: it brings the number within its bounds."""
        return bool((await decode())["spec"]["replicas"] == 4)

    async with recorded(one.api, one.namespace) as history:
        await one.apply(tiers__decode__replicas=3)
        await one.until("Ready", "True")
        assert _owns_replicas(await decode())
        await one.apply(tiers__decode__autoscaling=SCALED)
        await one.until("Ready", "True")
        await eventually(lambda: _stands(one), "the autoscaler", seconds=SECONDS)
        assert not _owns_replicas(await decode())
        scale = {"spec": {"replicas": 6}}
        await one.api.merge(f"{one.path('Deployment', DECODE)}/scale", scale)
        await eventually(scaled_by_others, "its bound", seconds=SECONDS)
        await one.until("Ready", "True")
        assert not _owns_replicas(await decode())
        await one.apply(tiers__decode__replicas=4)
        await one.until("Ready", "True")
        await eventually(lambda: _goes(one), "the autoscaler's end", seconds=SECONDS)
        assert _owns_replicas(await decode())
        await one.apply(tiers__decode__replicas=2)
        await one.until("Ready", "True")
    assert replicas(history.ordered(), DECODE) == [3, 6, 4, 2]


def _owns_replicas(deployment: Object) -> bool:
    return any(
        entry["manager"] == "triptych" and "f:replicas" in entry["fieldsV1"].get("f:spec", {})
        for entry in deployment["metadata"]["managedFields"]
    )


async def _stands(one: Served) -> bool:
    return await one.api.find(one.path("HorizontalPodAutoscaler", DECODE)) is not None


async def _goes(one: Served) -> bool:
    return not await _stands(one)


def columns(cluster: Cluster, namespace: str) -> dict[str, str]:
    """``kubectl get mms``, by the names of its columns."""
    head, row = cluster.kubectl("get", "mms", f"-n={namespace}").splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", head)]
    spans = zip(starts, [*starts[1:], None], strict=True)
    return {head[start:end].strip(): row[start:end].strip() for start, end in spans}


async def test_columns_count_what_is_wanted_while_nothing_is_there(
    cluster: Cluster, one: Served
) -> None:
    """A quota keeps everything from being made; still it says how many there should be."""
    path = f"/api/v1/namespaces/{one.namespace}/resourcequotas"
    hard = {"count/deployments.apps": "0"}
    metadata = {"name": "none"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    await one.api.create(path, {**quota, "spec": {"hard": hard}})
    await eventually(lambda: no_more_deployments(one), "the quota in force", seconds=SECONDS)
    await one.apply(tiers__decode__replicas=2)
    await one.until("Ready", "False")
    found = columns(cluster, one.namespace)
    assert (found["NAME"], found["READY"], found["TOPOLOGY"]) == ("shapes", "False", "FullSplit")
    assert (found["E"], found["P"], found["D"]) == ("0/1", "0/1", "0/2")
    await one.api.delete(f"{path}/none")
    await one.until("Ready", "True")
    found = columns(cluster, one.namespace)
    assert (found["READY"], found["D"]) == ("True", "2/2")
    assert found["URL"] == f"http://shapes-gateway.{one.namespace}.svc:8000"
