"""What the operator's account may do is this list: nothing more, and nothing about Secrets."""

from __future__ import annotations

import pytest
from cluster.control_plane import ControlPlane
from tools.programs import CHART, Helm

pytestmark = pytest.mark.usefixtures("nothing_left")

CHILD = "get list watch create patch delete"
WATCHED = {
    "multimodalservices.triptych.dev": "get list watch",
    "multimodalservices.triptych.dev/status": "patch",
    "configmaps": CHILD,
    "serviceaccounts": CHILD,
    "services": CHILD,
    "deployments.apps": CHILD,
    "horizontalpodautoscalers.autoscaling": CHILD,
    "networkpolicies.networking.k8s.io": CHILD,
    "poddisruptionbudgets.policy": CHILD,
    "pods": "get list watch",
    "pods/status": "patch",
    "events.events.k8s.io": "create",
}
METRICS_API = {
    "apiservices.apiregistration.k8s.io v1beta1.external.metrics.k8s.io": "get patch",
}
ENDPOINT = {
    "endpointslices.discovery.k8s.io": "create",
    "endpointslices.discovery.k8s.io triptych-operator-api": "get patch",
}
ELECTION = {
    "leases.coordination.k8s.io": "create",
    "leases.coordination.k8s.io triptych-operator": "get update",
}
VIEW = {
    "multimodalservices.triptych.dev": "get list watch",
    "multimodalservices.triptych.dev/status": "get list watch",
}
EDIT = VIEW | {
    "multimodalservices.triptych.dev": "get list watch create update patch delete deletecollection"
}


def rights(control_plane: ControlPlane, account: str, namespace: str) -> dict[str, str]:
    """Resources that ``account`` may touch in ``namespace``, beyond what everybody may."""
    mine = _listed(control_plane, account, namespace)
    everybody = _listed(control_plane, "nobody", namespace)
    return {what: verbs for what, verbs in mine.items() if everybody.get(what) != verbs}


def _listed(control_plane: ControlPlane, account: str, namespace: str) -> dict[str, str]:
    text = control_plane.kubectl(
        "auth", "can-i", "--list", "--no-headers", f"--namespace={namespace}", f"--as={account}",
        "--as-group=system:authenticated",
    )  # fmt: skip
    found = {}
    for line in text.splitlines():
        before, urls, rest = line.partition("[")
        names, verbs = rest.rpartition("[")[0], rest.rpartition("[")[2].rstrip("]")
        name = names.rpartition("[")[2].rstrip(" ]")
        assert urls
        if before.strip():  # else it is about a URL
            found[" ".join(filter(None, [before.strip(), name]))] = verbs
    return found


@pytest.fixture
def account(namespace: str) -> str:
    return f"system:serviceaccount:{namespace}:triptych-operator"


def test_for_all_namespaces_it_may_do_this_everywhere(
    control_plane: ControlPlane, helm: Helm, namespace: str, account: str
) -> None:
    helm.run("install", "triptych", CHART, "-n", namespace)
    everywhere = WATCHED | METRICS_API
    assert rights(control_plane, account, "default") == everywhere
    assert rights(control_plane, account, namespace) == everywhere | ELECTION | ENDPOINT


def test_where_others_serve_metrics_it_may_not_touch_their_api(
    control_plane: ControlPlane, helm: Helm, namespace: str, account: str
) -> None:
    theirs = "--set=autoscaling.provider=prometheus"
    helm.run("install", "triptych", CHART, "-n", namespace, theirs)
    assert rights(control_plane, account, namespace) == WATCHED | ELECTION


def test_for_some_namespaces_it_may_do_this_there_alone(
    control_plane: ControlPlane, helm: Helm, namespace: str, account: str
) -> None:
    helm.run("install", "triptych", CHART, "-n", namespace, "--set=watch.namespaces={default}")
    assert rights(control_plane, account, "default") == WATCHED
    assert rights(control_plane, account, namespace) == ELECTION
    assert rights(control_plane, account, "kube-public") == {}
    ours = "app.kubernetes.io/part-of=triptych"
    cluster_roles = control_plane.kubectl(
        "get", "clusterroles,clusterrolebindings", "-o", "name", f"--selector={ours}"
    )
    assert cluster_roles == ""


def test_without_an_election_it_may_not_touch_leases(
    control_plane: ControlPlane, helm: Helm, namespace: str, account: str
) -> None:
    alone = "--set=leaderElection.enabled=false,replicas=1"
    helm.run("install", "triptych", CHART, "-n", namespace, alone)
    assert rights(control_plane, account, namespace) == WATCHED | METRICS_API | ENDPOINT


def test_the_roles_of_users_cover_multimodal_services(
    control_plane: ControlPlane, helm: Helm, namespace: str
) -> None:
    helm.run("install", "triptych", CHART, "-n", namespace)
    for role, allowed in (("view", VIEW), ("edit", EDIT), ("admin", EDIT)):
        binding = ("create", "rolebinding", role, f"--clusterrole={role}", f"--user=a-{role}")
        control_plane.kubectl(*binding, f"--namespace={namespace}")
        found = rights(control_plane, f"a-{role}", namespace)
        ours = {what: verbs for what, verbs in found.items() if "triptych.dev" in what}
        assert {what: set(verbs.split()) for what, verbs in ours.items()} == {
            what: set(verbs.split()) for what, verbs in allowed.items()
        }
