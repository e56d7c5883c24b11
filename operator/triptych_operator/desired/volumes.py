"""Volumes of a pod: its configuration, room for temporary files, and where the model lies."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from triptych_contract.names import Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.desired import naming
from triptych_operator.json_values import Json, JsonObject
from triptych_operator.runtime import CLAIM_SCHEME, MODELS_FOLDER, encodes

CONFIG_FOLDER: Final = PurePosixPath("/etc/triptych")
DOWNLOADS_FOLDER: Final = PurePosixPath("/var/cache/triptych")
TEMPORARY_FOLDER: Final = PurePosixPath("/tmp")  # noqa: S108 - a path inside the pod


def volumes(service: MultimodalService, tier: Tier) -> list[Json]:
    """What the pod mounts."""
    made: list[Json] = [
        {"name": "config", "configMap": {"name": naming.child(service, tier)}},
        {"name": "tmp", "emptyDir": {}},
        _downloads(service),
    ]
    for index, claim in enumerate(_claims(service, tier)):
        source: JsonObject = {"claimName": claim, "readOnly": True}
        made.append({"name": f"models-{index}", "persistentVolumeClaim": source})
    return made


def mounts(service: MultimodalService, tier: Tier) -> list[Json]:
    """Where the container sees it."""
    made: list[Json] = [
        {"name": "config", "mountPath": str(CONFIG_FOLDER), "readOnly": True},
        {"name": "tmp", "mountPath": str(TEMPORARY_FOLDER)},
        {"name": "downloads", "mountPath": str(DOWNLOADS_FOLDER)},
    ]
    for index, claim in enumerate(_claims(service, tier)):
        path = str(MODELS_FOLDER / claim)
        made.append({"name": f"models-{index}", "mountPath": path, "readOnly": True})
    return made


def _downloads(service: MultimodalService) -> JsonObject:
    claim = service.spec.model.download_claim
    if claim is None:
        return {"name": "downloads", "emptyDir": {}}
    return {"name": "downloads", "persistentVolumeClaim": {"claimName": claim}}


def _claims(service: MultimodalService, tier: Tier) -> list[str]:
    """Claims that hold what the tier loads, each once, sorted."""
    model = service.spec.model
    sources = [model.source]
    if model.encoder is not None and encodes(service.spec, tier):
        sources.append(model.encoder.source)
    return sorted(
        {
            source.removeprefix(CLAIM_SCHEME).partition("/")[0]
            for source in sources
            if source.startswith(CLAIM_SCHEME)
        }
    )
