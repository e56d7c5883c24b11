"""Settings of the operator's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from triptych_operator.desired.platform import Platform
from triptych_operator.metrics_api.front import Front


@dataclass(frozen=True, slots=True)
class Election:
    """By which Lease the replicas of the operator agree on one that acts."""

    namespace: str
    name: str = "triptych-operator"
    duration: float = 15.0  # seconds after which a silent leader has lost it
    renew: float = 3.0  # seconds between the leader's signs of life


@dataclass(frozen=True, slots=True)
class Listen:
    """Where health and metrics are served."""

    host: str = "0.0.0.0"
    port: int = 8080


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast things go, in seconds but for the counts."""

    workers: int = 16  # resources at a time
    flushes: int = 4  # resources whose caches are flushed at a time
    audit: float = 20.0  # between two lists of everything
    scaling: float = 5.0  # between two looks at the signals of a resource
    scalings: int = 4  # resources at a time whose signals are looked at
    definition: float = 10.0  # between two looks at the cluster's resource definition
    first_retry: float = 0.5
    last_retry: float = 60.0
    reconcile: float = 60.0  # how long one may take


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What one process of the operator needs to know."""

    platform: Platform
    kubeconfig: Path | None = None  # None: the environment's, or the pod's own
    namespaces: tuple[str, ...] = ()  # empty: all
    election: Election | None = None  # None: it is the only one
    listen: Listen | None = None
    flush_caches: bool = True  # False where pods cannot be reached from here
    read_signals: bool = True  # likewise
    front: Front | None = None  # None: no signals are served to autoscalers
    pace: Pace = field(default_factory=Pace)

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """The namespaces to list and watch; ``None`` stands for all of them."""
        return self.namespaces or (None,)
