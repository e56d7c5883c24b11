"""Events: what ``kubectl describe`` shows below the resource."""

from __future__ import annotations

import logging
import socket
import uuid
from typing import Final

from triptych_operator.api.service import API_VERSION, KIND, Metadata
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import EVENT
from triptych_operator.cluster.refusals import Refusal
from triptych_operator.status.announcements import Announcement

_logger = logging.getLogger(__name__)
_NOTE_LIMIT: Final = 1024  # characters, by the API
_CONTROLLER: Final = "triptych.dev/operator"


async def announce(api: Api, resource: Metadata, told: Announcement, now: str) -> None:
    """Posts an Event. One that is refused is logged: no resource waits for its Events.

    Args:
        resource: its name, namespace and uid are what counts.
        now: RFC 3339 with microseconds.
    """
    name, namespace = resource.name, resource.namespace
    about = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "namespace": namespace,
        "uid": resource.uid,
    }
    manifest = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"name": f"{name}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
        "eventTime": now,
        "type": told.type,
        "reason": told.reason,
        "note": told.message[:_NOTE_LIMIT],
        "action": "Reconcile",
        "regarding": about,
        "reportingController": _CONTROLLER,
        "reportingInstance": socket.gethostname()[:128],
    }
    try:
        await api.create(EVENT, manifest)
    except Refusal as refused:
        _logger.warning("an Event about %s/%s was not posted: %s", namespace, name, refused.message)
