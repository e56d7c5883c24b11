"""The kinds of objects that the operator touches, and their paths on the API server. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from triptych_operator.api.service import GROUP, KIND, PLURAL, VERSION


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object."""

    group: str  # empty for the core group
    version: str
    plural: str
    name: str

    @property
    def api_version(self) -> str:
        """As in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path of an object, or of the collection in ``namespace`` (``None``: in all, or of a
        kind that is in none)."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [self.plural, name, subresource]
        return "/" + "/".join(part for part in parts if part)


SERVICE_RESOURCE: Final = Kind(GROUP, VERSION, PLURAL, KIND)
POD: Final = Kind("", "v1", "pods", "Pod")
DEPLOYMENT: Final = Kind("apps", "v1", "deployments", "Deployment")
AUTOSCALER: Final = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
SCALED_OBJECT: Final = Kind("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
EVENT: Final = Kind("events.k8s.io", "v1", "events", "Event")
ENDPOINT_SLICE: Final = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
METRICS_API: Final = Kind("apiregistration.k8s.io", "v1", "apiservices", "APIService")
LEASE: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
CONFIG_MAP: Final = Kind("", "v1", "configmaps", "ConfigMap")
SERVICE: Final = Kind("", "v1", "services", "Service")

# What the operator applies, and deletes when it is not wanted any more.
CHILDREN: Final = (
    Kind("", "v1", "serviceaccounts", "ServiceAccount"),
    CONFIG_MAP,
    SERVICE,
    Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    DEPLOYMENT,
    AUTOSCALER,
)
# All that it watches in any cluster.
OBSERVED: Final = (SERVICE_RESOURCE, *CHILDREN, POD)
BY_NAME: Final = {kind.name: kind for kind in (*OBSERVED, SCALED_OBJECT)}


def observed(*, by_keda: bool) -> tuple[Kind, ...]:
    """All that is watched, where KEDA makes the autoscalers, or nobody but us."""
    return (*OBSERVED, SCALED_OBJECT) if by_keda else OBSERVED
