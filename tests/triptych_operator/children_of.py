"""Resources and their children as an API server in memory has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from api_server import ApiServer, Object
from mms_builders import manifest
from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.cluster.kinds import BY_NAME, CHILDREN, DEPLOYMENT, POD, SERVICE_RESOURCE
from triptych_operator.desired.naming import MANAGER
from triptych_operator.desired.platform import Platform
from triptych_operator.observed.store import ServiceKey

PLATFORM: Final = Platform(image="worker:1")
SHAPES: Final = ServiceKey("n", "shapes")


def resource(server: ApiServer, name: str = "shapes", **changes: object) -> Object:
    """Has a user apply a resource, by no call."""
    body = manifest(**changes)
    body["metadata"] |= {"namespace": "n", "name": name}
    return server.put(SERVICE_RESOURCE, body)


def service(server: ApiServer, name: str = "shapes") -> MultimodalService:
    """The resource as the operator reads it."""
    found = server.get(SERVICE_RESOURCE, "n", name)
    assert found is not None
    return validate_service(found, "test")


def standing(server: ApiServer, kind: str) -> list[str]:
    """Names of the objects of ``kind``."""
    return sorted(name for one, _, name in server.objects if one == kind)


def body(server: ApiServer, kind: str, name: str) -> Object:
    """An object as it stands."""
    found = server.get(BY_NAME[kind], "n", name)
    assert found is not None, f"there is no {kind} {name}"
    return found


def scaled(deployment: str, pods: int) -> Object:
    """What somebody applies to set a number of pods."""
    return {"metadata": {"namespace": "n", "name": deployment}, "spec": {"replicas": pods}}


def make_ready(server: ApiServer) -> None:
    """Gives every Deployment the pods that it wants, ready, and no others, and has it say so."""
    wanted = {}
    for deployment in standing(server, "Deployment"):
        spec = body(server, "Deployment", deployment)["spec"]
        for number in range(spec.get("replicas", 1)):
            wanted[f"{deployment}-{number}"] = spec["template"]
    for name in standing(server, "Pod"):
        labels = body(server, "Pod", name)["metadata"]["labels"]
        if labels != wanted.get(name, {}).get("metadata", {}).get("labels"):
            server.remove(POD, "n", name)
    for name, template in wanted.items():
        put_pod(server, name, template)
    for deployment in standing(server, "Deployment"):
        roll_out(server, deployment)


def roll_out(server: ApiServer, deployment: str) -> None:
    """Has a Deployment say that all its pods are of its version and ready."""
    found = body(server, "Deployment", deployment)
    counts = ("replicas", "updatedReplicas", "readyReplicas")
    status = dict.fromkeys(counts, found["spec"].get("replicas", 1))
    status["observedGeneration"] = found["metadata"]["generation"]
    metadata = {"namespace": "n", "name": deployment}
    server.put(DEPLOYMENT, {"metadata": metadata, "status": status}, manager="controllers")


def put_pod(server: ApiServer, name: str, template: Object, **status: Any) -> Object:
    """A pod of ``template``, ready unless ``status`` says something else."""
    conditions = [{"type": type_, "status": "True"} for type_ in ("ContainersReady", "Ready")]
    metadata = {"namespace": "n", "name": name, "labels": template["metadata"]["labels"]}
    return server.put(POD, {"metadata": metadata, "status": {"conditions": conditions, **status}})


def foreign(kind: str, name: str, **parts: Any) -> tuple[Any, Object]:
    """An object of somebody else's."""
    return BY_NAME[kind], {"metadata": {"namespace": "n", "name": name}, **parts}


def applies(server: ApiServer) -> list[str]:
    """Kinds and names that were applied, in order, without statuses."""
    return [one.removeprefix("PATCH ") for one in server.writes if not one.endswith("status")]


@contextmanager
def quiet(server: ApiServer) -> Iterator[list[str]]:
    """The writes that are made within the block; filled when it ends."""
    begun = len(server.writes)
    made: list[str] = []
    yield made
    made.extend(server.writes[begun:])


def kinds(lines: Sequence[str]) -> list[str]:
    """Kinds in the order of their first line."""
    return list(dict.fromkeys(line.split()[0] for line in lines))


ALL_KINDS: Final = [kind.name for kind in CHILDREN]
OUR_MANAGER: Final = MANAGER
