"""Calls as they go over the wire, and what becomes of every kind of answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_server import ApiServer, refusing, status
from triptych_operator.cluster import connection
from triptych_operator.cluster.answers import Page
from triptych_operator.cluster.api import PAGE, Api
from triptych_operator.cluster.kinds import BY_NAME, DEPLOYMENT, LEASE, POD, SERVICE_RESOURCE
from triptych_operator.cluster.refusals import Refusal

CONFIG_MAP = BY_NAME["ConfigMap"]


def config(name: str = "one", **data: str) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_an_apply_is_one_call_by_our_manager_with_force(server: ApiServer, api: Api) -> None:
    made = await api.apply(CONFIG_MAP, config(a="1"))
    [call] = server.calls
    assert call.text == "PATCH ConfigMap one"
    assert call.query == {"fieldManager": "triptych", "force": "true"}
    assert call.headers["Content-Type"] == "application/apply-patch+yaml"
    assert call.headers["Authorization"] == "Bearer secret"
    assert call.headers["User-Agent"] == "triptych-operator"
    assert call.body == config(a="1")
    assert made == server.get(CONFIG_MAP, "n", "one")


async def test_an_apply_wins_over_values_of_others(server: ApiServer, api: Api) -> None:
    server.put(CONFIG_MAP, config(a="theirs"))
    await api.apply(CONFIG_MAP, config(a="ours"))
    found = server.get(CONFIG_MAP, "n", "one")
    assert found and found["data"] == {"a": "ours"}


async def test_a_status_goes_to_its_subresource(server: ApiServer, api: Api) -> None:
    metadata = {"namespace": "n", "name": "shapes"}
    server.put(SERVICE_RESOURCE, {"metadata": metadata, "spec": {}})
    await api.apply(
        SERVICE_RESOURCE, {"metadata": metadata, "status": {"url": "x"}}, subresource="status"
    )
    assert server.writes == ["PATCH MultimodalService shapes status"]


async def test_another_manager_may_be_named(server: ApiServer, api: Api) -> None:
    await api.apply(CONFIG_MAP, config(), manager="somebody")
    assert server.calls[-1].query["fieldManager"] == "somebody"


async def test_an_object_is_created_once(server: ApiServer, api: Api) -> None:
    await api.create(CONFIG_MAP, config())
    with pytest.raises(Refusal) as refused:
        await api.create(CONFIG_MAP, config())
    assert refused.value.cause == "AlreadyExists"


async def test_a_replacement_needs_the_version_that_stands(server: ApiServer, api: Api) -> None:
    lease = {"metadata": {"namespace": "n", "name": "l"}, "spec": {"holderIdentity": "a"}}
    first = await api.create(LEASE, lease)
    second = await api.replace(LEASE, {**first, "spec": {"holderIdentity": "b"}})
    assert second["spec"] == {"holderIdentity": "b"}
    with pytest.raises(Refusal) as refused:
        await api.replace(LEASE, {**first, "spec": {"holderIdentity": "c"}})
    assert refused.value.cause == "Conflict"


async def test_a_deletion_is_of_that_very_object(server: ApiServer, api: Api) -> None:
    made = server.put(CONFIG_MAP, config())
    with pytest.raises(Refusal):
        await api.delete(CONFIG_MAP, "n", "one", "another-uid")
    assert server.get(CONFIG_MAP, "n", "one") == made
    await api.delete(CONFIG_MAP, "n", "one", made["metadata"]["uid"])
    assert server.get(CONFIG_MAP, "n", "one") is None
    assert server.calls[-1].body["propagationPolicy"] == "Background"


async def test_to_delete_what_has_gone_is_fine(server: ApiServer, api: Api) -> None:
    await api.delete(CONFIG_MAP, "n", "one", "uid")
    assert server.writes == ["DELETE ConfigMap one"]


async def test_what_is_not_there_is_not_found(server: ApiServer, api: Api) -> None:
    assert await api.find(POD, "n", "p") is None
    server.faults.append(refusing("GET Pod", lambda: status(403, "Forbidden", "no")))
    with pytest.raises(Refusal) as refused:
        await api.find(POD, "n", "p")
    assert refused.value.status == 403


async def pages(api: Api, **options: Any) -> list[Page]:
    namespace = options.pop("namespace", None)
    selector = options.pop("selector", "")
    return [page async for page in api.pages(CONFIG_MAP, namespace, selector, **options)]


async def test_a_list_comes_in_pages_with_its_version(server: ApiServer, api: Api) -> None:
    for number in range(PAGE + 3):
        server.put(CONFIG_MAP, config(f"c{number:04}"))
    found = await pages(api)
    assert [len(page.items()) for page in found] == [PAGE, 3]
    assert {page.version for page in found} == {server.version}
    assert len({item["metadata"]["name"] for page in found for item in page.items()}) == PAGE + 3


async def test_lists_of_custom_resources_tell_their_version_after_their_items(
    server: ApiServer, api: Api
) -> None:
    for number in range(PAGE + 3):
        server.put(SERVICE_RESOURCE, config(f"c{number:04}"))
    found = [page async for page in api.pages(SERVICE_RESOURCE, None, "")]
    assert [len(page.items()) for page in found] == [PAGE, 3]
    assert {page.version for page in found} == {server.version}


async def test_an_empty_list_is_one_empty_page(api: Api) -> None:
    [page] = await pages(api)
    assert (page.version, page.items()) == (100, [])


async def test_lists_keep_to_a_namespace_and_to_labels(server: ApiServer, api: Api) -> None:
    labelled = config("two")
    labelled["metadata"]["labels"] = {"app": "x"}
    other = config("three")
    other["metadata"]["namespace"] = "m"
    for one in (config("one"), labelled, other):
        server.put(CONFIG_MAP, one)

    async def names(**options: Any) -> list[str]:
        [page] = await pages(api, **options)
        return [item["metadata"]["name"] for item in page.items()]

    assert await names(namespace="n") == ["one", "two"]
    assert await names(selector="app=x") == ["two"]
    assert await names() == ["three", "one", "two"]


async def test_metadata_alone_is_asked_for_as_such(server: ApiServer, api: Api) -> None:
    server.put(CONFIG_MAP, config(secret="x"))
    [page] = await pages(api, metadata_only=True)
    assert [set(item) for item in page.items()] == [{"metadata"}]
    assert "as=PartialObjectMetadataList" in server.calls[-1].headers["Accept"]


async def test_pages_of_equal_objects_have_equal_texts(server: ApiServer, api: Api) -> None:
    server.put(CONFIG_MAP, config())
    [before] = await pages(api, metadata_only=True)
    server.put(POD, config())
    [same] = await pages(api, metadata_only=True)
    server.put(CONFIG_MAP, config(a="1"))
    [changed] = await pages(api, metadata_only=True)
    assert same.version > before.version
    assert (same.text == before.text, changed.text == before.text) == (True, False)


async def test_a_list_that_is_none_is_a_refusal(server: ApiServer, api: Api) -> None:
    texts = ["<html>", '{"items":[', '{"metadata":{},"items":[{]}']
    for text in texts:
        server.faults[:] = [refusing("GET", lambda: web.Response(text=text))]  # noqa: B023 - used here
        with pytest.raises(Refusal, match="not an API server's"):
            [page.items() for page in await pages(api)]


async def test_a_busy_server_says_when_to_come_back(server: ApiServer, api: Api) -> None:
    busy = {"Retry-After": "4"}
    server.faults.append(
        refusing("PATCH", lambda: status(429, "TooManyRequests", "busy", **busy), times=1)
    )
    with pytest.raises(Refusal) as refused:
        await api.apply(CONFIG_MAP, config())
    assert (refused.value.status, refused.value.retry_after, refused.value.passes) == (429, 4, True)
    await api.apply(CONFIG_MAP, config())


@pytest.mark.parametrize("text", ["<html>hello</html>", "", "{"])
async def test_an_answer_that_is_no_json_is_a_refusal(
    server: ApiServer, api: Api, text: str
) -> None:
    server.faults.append(refusing("GET", lambda: web.Response(text=text)))
    with pytest.raises(Refusal) as refused:
        await api.find(POD, "n", "p")
    assert (refused.value.cause, refused.value.passes) == ("ApiServerUnreachable", True)


async def test_a_server_that_is_gone_is_a_refusal_that_passes(tmp_path: Path) -> None:
    async with ApiServer() as server:
        configuration = await connection.load(server.kubeconfig(tmp_path))
    async with Api(configuration) as api:
        with pytest.raises(Refusal) as refused:
            await api.apply(DEPLOYMENT, config())
    assert (refused.value.status, refused.value.cause) == (0, "ApiServerUnreachable")


async def test_writes_are_asked_for_and_reads_are_not(server: ApiServer, tmp_path: Path) -> None:
    allowed = [True, False, False]
    configuration = await connection.load(server.kubeconfig(tmp_path))
    async with Api(configuration, may_write=lambda: allowed.pop(0)) as api:
        made = await api.apply(CONFIG_MAP, config())
        with pytest.raises(Refusal) as refused:
            await api.apply(CONFIG_MAP, config(a="1"))
        with pytest.raises(Refusal):
            await api.delete(CONFIG_MAP, "n", "one", made["metadata"]["uid"])
        assert await api.find(CONFIG_MAP, "n", "one") == made
    assert refused.value.cause == "NotLeading"
    assert server.writes == ["PATCH ConfigMap one"]
