"""What a fault is, and the files of the operator that faults are put into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutant:
    """In ``path`` below ``operator/triptych_operator``, ``new`` stands where ``old`` does, once."""

    fault: str
    path: str
    old: str
    new: str


APPLIER: Final = "controller/applier.py"
AUDIT: Final = "controller/audit.py"
EDGE: Final = "controller/edge.py"
QUEUE: Final = "controller/queue.py"
RECONCILE: Final = "controller/reconcile.py"
WORKERS: Final = "controller/workers.py"
API: Final = "cluster/api.py"
ELECTION: Final = "cluster/election.py"
REFUSALS: Final = "cluster/refusals.py"
EVENTS: Final = "cluster/events.py"
STATUSES: Final = "cluster/statuses.py"
STORE: Final = "observed/store.py"
SNAPSHOT: Final = "observed/snapshot.py"
TROUBLES: Final = "observed/troubles.py"
DIFFERENCE: Final = "desired/difference.py"
DEPLOYMENTS: Final = "desired/deployments.py"
NAMING: Final = "desired/naming.py"
CONDITIONS: Final = "status/conditions.py"
ANNOUNCEMENTS: Final = "status/announcements.py"
STEP: Final = "rollout/step.py"
COMPLETENESS: Final = "rollout/completeness.py"
ADMISSION: Final = "rollout/admission.py"
MEASURES: Final = "signals/measures.py"
HISTORY: Final = "signals/history.py"
MEMORY: Final = "signals/memory.py"
ROUNDS: Final = "signals/rounds.py"
PAGE: Final = "signals/page.py"
BOUNDS: Final = "scaling/bounds.py"
REST: Final = "scaling/rest.py"
DEPARTURES: Final = "scaling/departures.py"
SCALER: Final = "controller/scaling.py"
METRICS_SERVER: Final = "metrics_api/server.py"
REGISTRATION: Final = "metrics_api/registration.py"
