from pathlib import Path

from api_server import ApiServer, refusing, status
from mms_builders import manifest
from triptych_operator.api.manifests import validate_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.cluster import connection
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.events import announce
from triptych_operator.status.announcements import Announcement

NOW = "2026-01-01T00:00:00.000001Z"


def resource() -> MultimodalService:
    body = manifest()
    body["metadata"] |= {"namespace": "n", "uid": "u-1"}
    return validate_service(body, "test")


async def post(server: ApiServer, folder: Path, told: Announcement) -> None:
    async with Api(await connection.load(server.kubeconfig(folder))) as api:
        await announce(api, resource().metadata, told, NOW)


async def test_an_event_is_about_the_resource(server: ApiServer, tmp_path: Path) -> None:
    await post(server, tmp_path, Announcement("Warning", "Forbidden", "x" * 5000))
    [call] = server.calls
    assert call.body["regarding"] == {
        "apiVersion": "triptych.dev/v1alpha1",
        "kind": "MultimodalService",
        "name": "shapes",
        "namespace": "n",
        "uid": "u-1",
    }
    assert (call.body["type"], call.body["reason"]) == ("Warning", "Forbidden")
    assert (call.body["note"], call.body["eventTime"]) == ("x" * 1024, NOW)
    assert call.body["reportingController"] == "triptych.dev/operator"


async def test_two_events_have_two_names(server: ApiServer, tmp_path: Path) -> None:
    for _ in range(2):
        await post(server, tmp_path, Announcement("Normal", "Ready", "all"))
    assert len({call.body["metadata"]["name"] for call in server.calls}) == 2


async def test_an_event_that_is_refused_fails_nothing(server: ApiServer, tmp_path: Path) -> None:
    server.faults.append(refusing("POST Event", lambda: status(403, "Forbidden", "no")))
    await post(server, tmp_path, Announcement("Normal", "Ready", "all"))
    assert server.writes == ["POST Event"]
