"""Commits create, change and delete a service by Flux, and its health is what the status says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.api import Api, Object
from cluster.audit import Entry
from cluster.control_plane import ControlPlane
from cluster.kwok import PLAYS, Kwok, Plays
from cluster.operator_process import OperatorProcess
from cluster.waiting import eventually
from control_plane.faults.counts import untrue_counts
from control_plane.faults.history import Change, recorded, violations
from control_plane.faults.sweep import FULL
from gitops.autoscaled import AUTOSCALER, ENCODERS, autoscaled, scaled_spec
from tools.definitions import wait_until_served
from tools.flux import NAMESPACE, Flux
from tools.git_server import BRANCH, GitServer

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),  # the first build of Flux's controllers takes minutes
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go to build Kubernetes and Flux"),
]

ROOT = Path(__file__).resolve().parents[2]
SERVICES = "/apis/triptych.dev/v1alpha1/namespaces/models/multimodalservices"
KUSTOMIZATIONS = f"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/kustomizations"
KUSTOMIZATION = f"{KUSTOMIZATIONS}/models"
MOVING_SECONDS = 600.0 if FULL else 20.0
SECONDS = 90.0  # for Flux to see a commit and judge what came of it, on a busy machine
CHILD_KINDS = "deployments,services,configmaps,serviceaccounts,networkpolicies,hpa,pdb"


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(folder, audited=True) as running, Kwok(running, folder):
        running.kubectl("apply", "-f", str(ROOT / "crds"))
        wait_until_served(running, "multimodalservices")
        running.kubectl("create", "namespace", "models")
        yield running


@pytest.fixture(scope="module")
def flux(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    with Flux(control_plane, tmp_path_factory.mktemp("flux")) as running:
        yield running


@pytest.fixture(scope="module")
def repository(
    control_plane: ControlPlane, flux: Flux, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GitServer]:
    """A repository that Flux applies to the namespace ``models``."""
    with GitServer(tmp_path_factory.mktemp("git")) as server:
        server.commit({"README.md": "nothing yet\n"}, "Begin")
        control_plane.kubectl("apply", "-f", "-", manifest=flux_objects(server.url))
        yield server


def flux_objects(url: str) -> str:
    api, kinds = "toolkit.fluxcd.io/v1", ("source", "kustomize")
    metadata = {"name": "models", "namespace": NAMESPACE}
    source = {"url": url, "ref": {"branch": BRANCH}, "interval": "1s"}
    kustomization = {
        "sourceRef": {"kind": "GitRepository", "name": "models"},
        "path": "./",
        "targetNamespace": "models",
        "interval": "5s",
        "retryInterval": "2s",
        "timeout": "60s",
        "prune": True,
        "wait": True,
    }
    specs = zip(kinds, ("GitRepository", "Kustomization"), (source, kustomization), strict=True)
    return yaml.safe_dump_all(
        {"apiVersion": f"{group}.{api}", "kind": kind, "metadata": metadata, "spec": spec}
        for group, kind, spec in specs
    )


def service(**spec: Any) -> Mapping[str, str]:
    """The files of a repository with one service."""
    model = {"source": "builtin://shapes", "revision": "1", "servedName": "shapes"}
    made = {
        "apiVersion": "triptych.dev/v1alpha1",
        "kind": "MultimodalService",
        "metadata": {"name": "shapes"},
        "spec": {"model": model, "topology": "Fused", **spec},
    }
    return {"shapes.yaml": yaml.safe_dump(made)}


def condition(resource: Object, name: str) -> Object:
    found = [one for one in resource["status"].get("conditions", ()) if one["type"] == name]
    return found[0] if found else {"status": "", "reason": "", "message": ""}


async def until(api: Api, commit: str, name: str, status: str) -> Object:
    """The condition of the Kustomization once it has ``status`` and is about ``commit``."""

    async def look() -> Object | None:
        kustomization = await api.get(KUSTOMIZATION)
        attempted = kustomization.get("status", {}).get("lastAttemptedRevision", "")
        found = condition(kustomization, name)
        return found if attempted.endswith(commit) and found["status"] == status else None

    return await eventually(look, f"{name}={status} of {commit}", seconds=SECONDS)


async def test_a_service_follows_its_commits_and_flux_its_health(
    control_plane: ControlPlane, repository: GitServer, tmp_path: Path
) -> None:
    async with Api(control_plane.kubeconfig) as api:
        created = repository.commit(service(), "Serve shapes")
        pending = await until(api, created, "Reconciling", "True")
        # No operator has seen it yet, so it must not count as healthy.
        await eventually(lambda: api.find(f"{SERVICES}/shapes"), "the service", seconds=SECONDS)
        kustomization = await api.get(KUSTOMIZATION)
        assert condition(kustomization, "Ready")["status"] == "Unknown", pending

        async with OperatorProcess(control_plane.kubeconfig, tmp_path / "log", "models"):
            assert (await until(api, created, "Ready", "True"))["reason"] == (
                "ReconciliationSucceeded"
            )
            assert condition(await api.get(f"{SERVICES}/shapes"), "Ready")["status"] == "True"

            changed = repository.commit(service(topology="EncodeSplit"), "Split the encoder off")
            await until(api, changed, "Ready", "True")
            found = await api.get(f"{SERVICES}/shapes")
            assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
            assert condition(found, "EncoderReady")["status"] == "True"

            broken = {"metadata": {"annotations": {PLAYS: str(Plays.IMAGE_PULL)}}}
            tiers = {"encoder": {"template": broken}}
            stalled = repository.commit(service(topology="EncodeSplit", tiers=tiers), "Break it")
            failed = await until(api, stalled, "Ready", "False")
            assert failed["reason"] == "HealthCheckFailed"
            assert "MultimodalService/models/shapes" in failed["message"]

            repaired = repository.commit(service(topology="EncodeSplit"), "Repair it")
            await until(api, repaired, "Ready", "True")

        deleted = repository.commit({"README.md": "nothing any more\n"}, "Serve nothing")
        await until(api, deleted, "Ready", "True")
        assert await api.find(f"{SERVICES}/shapes") is None

        def nothing_left() -> bool:
            return not control_plane.kubectl(
                "get", CHILD_KINDS, "-n=models", "-o=name",
                "--selector=app.kubernetes.io/managed-by=triptych",
            )  # fmt: skip

        await eventually(nothing_left, "the children's deletion", seconds=SECONDS)


async def test_replicas_that_the_autoscaler_moves_are_no_drift(
    control_plane: ControlPlane, flux: Flux, repository: GitServer, tmp_path: Path
) -> None:
    async with autoscaled(control_plane, "models", tmp_path) as tier:
        commit = repository.commit(service(**scaled_spec()), "Scale by load")
        await until(tier.api, commit, "Ready", "True")
        resource, said = await tier.resource(), len(applied(flux))
        before, since = await tier.undisturbed(control_plane.audit.position)
        async with (
            recorded(tier.api, "models") as history,
            recorded(tier.api, NAMESPACE, {"Kustomization": KUSTOMIZATIONS}) as judged,
        ):
            asked = await tier.follow(MOVING_SECONDS)
            await until(tier.api, commit, "Ready", "True")
        changes = history.ordered()
        assert (await tier.resource())["spec"] == resource["spec"]
        after, writes = await tier.undisturbed(
            lambda: list(control_plane.audit.entries(since, namespace="models"))
        )
    moves = moves_of(writes)
    generations = [one["metadata"]["generation"] for one in (before, after)]
    assert generations[1] - generations[0] == moves >= asked, "each move is one, and all there is"
    assert owners_of_replicas(after) == set(), "moves through /scale are nobody's field"
    assert violations(changes) + untrue_counts(changes, "encoder") == []
    assert said_by(changes, "MultimodalService", "Ready") == {"True", "False"}, (
        "pods are waited for"
    )
    assert said_by(changes, "MultimodalService", "Reconciling") == {"True", ""}
    assert said_by(changes, "MultimodalService", "Stalled") == {""}
    assert said_by(judged.ordered(), "Kustomization", "Ready") - {"Unknown"} == {"True"}
    print(f"{moves} moves, applied {len(applied(flux)) - said} times")
    assert set(applied(flux)[said:]) == {"unchanged"}


def moves_of(writes: Iterable[Entry]) -> int:
    """How often the autoscaler changed the number of pods of a Deployment, as it alone did."""
    scaling = [
        one
        for one in writes
        if one.write.resource == "deployments" and one.write.subresource != "status"
    ]
    assert {(one.user, one.name, one.write.subresource) for one in scaling} == {
        (AUTOSCALER, ENCODERS, "scale")
    }
    return sum(one.code == 200 for one in scaling)


def owners_of_replicas(deployment: Object) -> set[str]:
    """Who has applied or written the number of pods as a field of the Deployment."""
    return {
        one["manager"]
        for one in deployment["metadata"]["managedFields"]
        if "f:replicas" in one["fieldsV1"].get("f:spec", {})
    }


def applied(flux: Flux) -> list[str]:
    """What came of each time that Flux applied the service."""
    said = flux.log("kustomize-controller")
    return re.findall(r'"MultimodalService/models/shapes":"(\w+)"', said)


def said_by(changes: Iterable[Change], kind: str, name: str) -> set[str]:
    """Every status that a condition of the objects of a kind has had."""
    bodies = (change.body for change in changes if change.kind == kind)
    return {condition({"status": {}, **body}, name)["status"] for body in bodies}
