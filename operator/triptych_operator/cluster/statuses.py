"""The one way in which a status is written, whoever has something to say of a resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triptych_operator.api.service import API_VERSION, KIND
from triptych_operator.cluster.answers import Object
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import SERVICE_RESOURCE
from triptych_operator.cluster.refusals import NOT_FOUND, Refusal
from triptych_operator.desired.naming import MANAGER


async def write_status(
    api: Api, body: Object, version: int, status: Mapping[str, Any], *, manager: str = MANAGER
) -> Object | None:
    """Applies what ``manager`` has to say; the resource as it then is, or ``None`` when it is gone.

    The server takes it for the very ``version`` alone that was looked at: it ignores the uid, so
    that what was true of a resource would be said of another one that has its name by now.

    Raises:
        Refusal: the server refused it; a conflict when the resource has changed since.
    """
    metadata = {name: body["metadata"][name] for name in ("name", "namespace", "uid")}
    metadata["resourceVersion"] = str(version)
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status}
    try:
        return await api.apply(SERVICE_RESOURCE, manifest, subresource="status", manager=manager)
    except Refusal as refused:
        if refused.status == NOT_FOUND:
            return None
        raise
