"""The store keeps the newest of everything, in whatever order it hears of it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_operator.observed.store import (
    ObjectKey,
    ServiceKey,
    Store,
    belongs,
    is_rolled_out,
    key_of,
    service_of,
    version_of,
)

KIND = "MultimodalService"
SHAPES, OTHER = ServiceKey("n", "shapes"), ServiceKey("n", "other")
DECODE = ObjectKey("Deployment", "n", "shapes-decode")


def resource(version: int = 1, uid: str = "u", **parts: Any) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": "shapes", "uid": uid, "generation": 1}
    return {"metadata": {**metadata, "resourceVersion": str(version)}, "spec": {}, **parts}


def child(version: int = 1, uid: str = "u", **parts: Any) -> dict[str, Any]:
    metadata = {
        "namespace": "n",
        "name": "shapes-decode",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"app.kubernetes.io/instance": "shapes"},
        **parts.pop("metadata", {}),
    }
    return {"metadata": metadata, **parts}


def owned_by(name: str, kind: str = KIND) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "uid": "o", "controller": True}]}


def test_what_is_new_names_the_resource_to_look_at() -> None:
    store = Store()
    assert store.put(KIND, resource()) == SHAPES
    assert store.put("Deployment", child()) == SHAPES
    assert store.services() == [SHAPES]
    [kept] = store.children(SHAPES)
    assert (kept.key, kept.uid, kept.version) == (DECODE, "u", 1)


def test_nothing_new_is_no_news() -> None:
    store = Store()
    store.put("Deployment", child(1, spec={"a": 1}))
    assert store.put("Deployment", child(1, spec={"a": 2})) is None
    assert store.put("Deployment", child(2, spec={"a": 1})) is None, "only the version is new"
    assert store.put("Deployment", child(3, spec={"a": 2})) == SHAPES


def deployment(generation: int, wanted: int | None, **status: int) -> dict[str, Any]:
    spec = {} if wanted is None else {"replicas": wanted}
    return {"metadata": {"generation": generation}, "spec": spec, "status": status}


def counts(pods: int, updated: int, ready: int) -> dict[str, int]:
    return {"replicas": pods, "updatedReplicas": updated, "readyReplicas": ready}


@pytest.mark.parametrize(
    ("body", "rolled_out"),
    [
        (deployment(3, 2, observedGeneration=3, **counts(2, 2, 2)), True),
        (deployment(3, 2), False),  # just made: its controller has not seen it
        (deployment(3, 2, observedGeneration=2, **counts(2, 2, 2)), False),
        (deployment(3, 2, observedGeneration=3, **counts(3, 2, 3)), False),  # an old one is left
        (deployment(3, 2, observedGeneration=3, **counts(2, 1, 2)), False),
        (deployment(3, 2, observedGeneration=3, **counts(2, 2, 1)), False),
        (deployment(3, 1, observedGeneration=3, **counts(2, 2, 2)), False),  # one too many
        (deployment(3, None, observedGeneration=3, **counts(1, 1, 1)), True),
        (deployment(3, 0, observedGeneration=3), True),  # none are written as nothing
        (deployment(3, 0), False),
    ],
)
def test_a_deployment_is_rolled_out_when_its_controller_says_so_of_its_version(
    body: dict[str, Any], rolled_out: bool
) -> None:
    assert is_rolled_out(body) is rolled_out


def test_counts_of_a_deployment_are_news_when_they_are_all_there_or_no_more() -> None:
    store = Store()
    spec = {"replicas": 2}

    def put(version: int, **status: int) -> ServiceKey | None:
        return store.put("Deployment", child(version, spec=spec, status=status))

    assert put(1) == SHAPES
    assert put(2, **counts(2, 2, 1)) is None
    assert put(3, **counts(2, 2, 2)) == SHAPES
    assert [one.rolled_out for one in store.children(SHAPES)] == [True]
    assert put(4, **counts(2, 2, 2)) is None
    assert put(5, **counts(2, 2, 1)) == SHAPES
    assert [one.rolled_out for one in store.children(SHAPES)] == [False]


@given(st.permutations(range(1, 7)))
def test_an_older_version_never_replaces_a_newer_one(order: list[int]) -> None:
    store = Store()
    for version in order:
        store.put("Deployment", child(version, spec={"replicas": version}))
    [kept] = store.children(SHAPES)
    assert (kept.version, kept.body()["spec"]["replicas"]) == (6, 6)


def test_the_same_again_under_another_uid_is_news() -> None:
    store = Store()
    store.put("Deployment", child(1, uid="first"))
    assert store.put("Deployment", child(2, uid="second")) == SHAPES
    [kept] = store.children(SHAPES)
    assert kept.uid == "second"


def test_a_deletion_forgets_the_object() -> None:
    store = Store()
    store.put(KIND, resource())
    store.put("Deployment", child())
    assert store.remove("Deployment", child(2)) == SHAPES
    assert store.children(SHAPES) == []
    assert store.remove("Deployment", child(2)) is None
    assert store.remove(KIND, resource(3)) == SHAPES
    assert (store.services(), store.resource(SHAPES)) == ([], None)


def test_a_late_deletion_does_not_forget_the_successor() -> None:
    store = Store()
    store.put("Deployment", child(5, uid="second"))
    assert store.remove("Deployment", child(4, uid="first")) is None
    assert [one.uid for one in store.children(SHAPES)] == ["second"]


def test_to_forget_what_is_not_known_is_fine() -> None:
    Store().forget(SHAPES, DECODE)


def test_children_without_their_resource_are_not_a_resource() -> None:
    store = Store()
    store.put("Deployment", child())
    assert (store.services(), store.resource(SHAPES)) == ([], None)
    assert store.child(SHAPES, DECODE) is not None
    assert store.child(OTHER, DECODE) is None


def test_the_resource_comes_back_as_a_manifest() -> None:
    store = Store()
    status = {"conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    store.put(KIND, resource(spec={"topology": "Fused"}, status=status))
    found = store.resource(SHAPES)
    assert found is not None
    assert (found["apiVersion"], found["kind"]) == ("triptych.dev/v1alpha1", KIND)
    assert (found["spec"], found["status"]) == ({"topology": "Fused"}, status)
    assert found["metadata"]["generation"] == 1


def test_every_object_of_a_kind_is_listed_with_its_resource() -> None:
    store = Store()
    store.put(KIND, resource())
    store.put("Deployment", child())
    assert [(key, one.key) for key, one in store.of_kind("Deployment")] == [(SHAPES, DECODE)]
    assert list(store.of_kind("Service")) == []


BOOKKEEPING: dict[str, tuple[str, dict[str, Any]]] = {
    "who manages which field": ("Deployment", {"metadata": {"managedFields": [{"manager": "x"}]}}),
    "the generation of a child": ("Deployment", {"metadata": {"generation": 9}}),
    "the time of creation": ("Deployment", {"metadata": {"creationTimestamp": "2026"}}),
    "the status of a deployment": ("Deployment", {"status": {"replicas": 2}}),
    "the status of a service": ("Service", {"status": {"loadBalancer": {}}}),
    "the spec of a pod": ("Pod", {"spec": {"nodeName": "a"}}),
    "the phase of a pod": ("Pod", {"status": {"phase": "Running", "hostIP": "10.0.0.1"}}),
    "the load that an autoscaler sees": (
        "HorizontalPodAutoscaler",
        {"status": {"currentMetrics": [1], "currentReplicas": 2}},
    ),
}


@pytest.mark.parametrize(("kind", "parts"), BOOKKEEPING.values(), ids=BOOKKEEPING.keys())
def test_it_is_no_news_when_the_server_keeps(kind: str, parts: dict[str, Any]) -> None:
    store = Store()
    store.put(kind, child(1, status={}))
    assert store.put(kind, child(2, **{"status": {}, **deepcopy(parts)})) is None


def timed(kind: str, **times: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "False", **times}
    return child(2 if times else 1, status={"conditions": [condition]})


@pytest.mark.parametrize("kind", ["Pod", "HorizontalPodAutoscaler"])
@pytest.mark.parametrize("field", ["lastTransitionTime", "lastProbeTime", "lastScaleTime"])
def test_times_of_children_are_no_news(kind: str, field: str) -> None:
    store = Store()
    store.put(kind, timed(kind))
    assert store.put(kind, timed(kind, **{field: "2026-01-01T00:00:00Z"})) is None


NEWS: dict[str, tuple[str, dict[str, Any]]] = {
    "a label": ("Service", {"metadata": {"labels": {"app.kubernetes.io/instance": "shapes"}}}),
    "an annotation": ("Service", {"metadata": {"annotations": {"a": "b"}}}),
    "an owner": ("Service", {"metadata": owned_by("shapes")}),
    "that it is being deleted": ("Pod", {"metadata": {"deletionTimestamp": "2026"}}),
    "a field of the spec": ("Deployment", {"spec": {"replicas": 2}}),
    "the data of a ConfigMap": ("ConfigMap", {"data": {"a": "b"}}),
    "a condition of a pod": ("Pod", {"status": {"conditions": [{"type": "Ready"}]}}),
    "where a pod is reached": ("Pod", {"status": {"podIP": "10.0.0.1"}}),
    "a container's state": ("Pod", {"status": {"containerStatuses": [{"name": "a"}]}}),
    "an init container's state": ("Pod", {"status": {"initContainerStatuses": [{"name": "a"}]}}),
    "a condition of an autoscaler": (
        "HorizontalPodAutoscaler",
        {"status": {"conditions": [{"type": "ScalingActive"}]}},
    ),
}


@pytest.mark.parametrize(("kind", "parts"), NEWS.values(), ids=NEWS.keys())
def test_it_is_news_when_somebody_changes(kind: str, parts: dict[str, Any]) -> None:
    store = Store()
    before = child(1, metadata={"labels": {"app.kubernetes.io/instance": "shapes", "a": "b"}})
    store.put(kind, before)
    after = deepcopy(before)
    after["metadata"] |= {**parts.get("metadata", {}), "resourceVersion": "2"}
    after |= {name: value for name, value in parts.items() if name != "metadata"}
    assert store.put(kind, after) == SHAPES


def test_a_new_generation_of_the_resource_is_news() -> None:
    store = Store()
    store.put(KIND, resource(1))
    changed = resource(2)
    changed["metadata"]["generation"] = 2
    assert store.put(KIND, changed) == SHAPES


def test_memory_holds_less_than_the_object() -> None:
    store = Store()
    fields = [{"manager": f"m{number}", "fieldsV1": {"f:x": {}}} for number in range(200)]
    store.put("Deployment", child(1, metadata={"managedFields": fields}, spec={"a": "b" * 10_000}))
    [kept] = store.children(SHAPES)
    assert len(kept.packed) < 500
    assert kept.body()["spec"] == {"a": "b" * 10_000}


def test_a_child_is_its_owners_whatever_its_label_says() -> None:
    labelled = child(metadata={**owned_by("other")})
    assert service_of("Deployment", labelled) == OTHER
    assert service_of("Deployment", child(metadata=owned_by("x", "ReplicaSet"))) == SHAPES
    assert service_of("Pod", child()) == SHAPES
    assert service_of(KIND, resource()) == SHAPES


def test_only_what_is_labelled_belongs_to_a_resource() -> None:
    assert belongs(KIND, resource())
    assert belongs("Deployment", child())
    assert not belongs("Deployment", {"metadata": {}})
    assert not belongs("Deployment", {"metadata": {"labels": {"app": "x"}}})


def test_keys_and_versions_are_read_from_the_object() -> None:
    assert key_of("Deployment", child()) == DECODE
    assert (version_of(child(12)), version_of({"metadata": {}})) == (12, 0)


def fields(manager: str, operation: str, *names: str) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "fieldsV1": {"f:spec": {f"f:{name}": {} for name in names}},
    }


OURS = fields("triptych", "Apply", "replicas", "template")
OWNERS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "we alone": ([OURS], True),
    "we, and others other fields": ([OURS, fields("kubectl", "Update", "paused")], True),
    "nobody": ([fields("triptych", "Apply", "template")], False),
    "we and the autoscaler": ([OURS, fields("hpa", "Update", "replicas")], False),
    "the autoscaler": ([fields("hpa", "Update", "replicas")], False),
    "an update in our name": ([fields("triptych", "Update", "replicas")], False),
    "an object without fields": ([{"manager": "x", "operation": "Update"}], False),
}


@pytest.mark.parametrize(("managed", "ours"), OWNERS.values(), ids=OWNERS.keys())
def test_who_owns_the_replicas_is_kept(managed: list[dict[str, Any]], ours: bool) -> None:
    store = Store()
    store.put("Deployment", child(metadata={"managedFields": managed}))
    [kept] = store.children(SHAPES)
    assert kept.replicas_ours is ours


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans())))
def test_the_store_never_shows_what_was_older_than_what_it_showed(
    events: list[tuple[str, int, bool]],
) -> None:
    store, shown = Store(), dict.fromkeys("abc", 0)
    for uid, version, deleted in events:
        if deleted:
            store.remove("Deployment", child(version, uid=uid))
            shown = dict.fromkeys(shown, 0) if not store.children(SHAPES) else shown
        else:
            store.put("Deployment", child(version, uid=uid))
        for one in store.children(SHAPES):
            assert one.version >= max(shown.values())
            shown[one.uid] = one.version
