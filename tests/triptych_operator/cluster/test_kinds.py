import pytest
from triptych_operator.cluster.kinds import (
    BY_NAME,
    CHILDREN,
    DEPLOYMENT,
    OBSERVED,
    POD,
    SCALED_OBJECT,
    SERVICE_RESOURCE,
    Kind,
    observed,
)
from triptych_operator.desired.state import KINDS


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        (POD, (None,), "/api/v1/pods"),
        (POD, ("n",), "/api/v1/namespaces/n/pods"),
        (POD, ("n", "p"), "/api/v1/namespaces/n/pods/p"),
        (DEPLOYMENT, ("n", "d"), "/apis/apps/v1/namespaces/n/deployments/d"),
        (
            SERVICE_RESOURCE,
            ("n", "s", "status"),
            "/apis/triptych.dev/v1alpha1/namespaces/n/multimodalservices/s/status",
        ),
    ],
)
def test_paths_are_those_of_the_api(kind: Kind, arguments: tuple[str, ...], path: str) -> None:
    assert kind.path(*arguments) == path


def test_versions_are_written_as_in_manifests() -> None:
    assert (POD.api_version, DEPLOYMENT.api_version) == ("v1", "apps/v1")


def test_every_kind_that_is_built_can_be_applied_and_is_observed() -> None:
    assert {kind.name for kind in (*CHILDREN, SCALED_OBJECT)} == set(KINDS)
    assert observed(by_keda=True) == (*OBSERVED, SCALED_OBJECT)
    assert observed(by_keda=False) == OBSERVED
    assert {*CHILDREN, SERVICE_RESOURCE, POD} == set(OBSERVED)
    assert all(BY_NAME[kind.name] is kind for kind in observed(by_keda=True))
