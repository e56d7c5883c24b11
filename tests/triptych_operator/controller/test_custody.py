"""Who acts on a resource that two installations look after."""

from __future__ import annotations

from dataclasses import replace

import pytest
from api_server import Object
from children_of import PLATFORM, SHAPES, body, resource
from desk import Desk
from triptych_operator.cluster.kinds import BY_NAME
from triptych_operator.controller.custody import Custody
from triptych_operator.controller.reconcile import Reconciler
from triptych_operator.controller.workers import Task
from triptych_operator.desired import naming
from triptych_operator.desired.wanted import WantedCache

OURS, OTHERS = "ours", "others"


def acting(desk: Desk, installation: str | None = OURS) -> Task:
    """An operator of that installation, which knows what ``desk`` has observed."""
    wanted = WantedCache(replace(PLATFORM, installation=installation))
    reconciler = Reconciler(desk.api, desk.store, wanted, desk.changed.append, lambda: desk.now)
    custody = Custody(desk.api, desk.store, installation, lambda: desk.now)
    return custody.guarded(reconciler.reconcile)


async def looks(desk: Desk, task: Task) -> list[str]:
    """What a look with everything known writes."""
    await desk.observe()
    await task(SHAPES)
    return desk.server.writes


def name_on(desk: Desk) -> str | None:
    account = body(desk.server, "ServiceAccount", "shapes")
    name: str | None = account["metadata"].get("annotations", {}).get(naming.OPERATOR)
    return name


def taken_over(desk: Desk, by: str | None = OTHERS) -> None:
    """Another operator applies the account, with its name on it if it has one."""
    account = body(desk.server, "ServiceAccount", "shapes")
    annotations = {**account["metadata"]["annotations"], naming.OPERATOR: by}
    if by is None:
        del annotations[naming.OPERATOR]
    made = {**account, "metadata": {**account["metadata"], "annotations": annotations}}
    desk.server.put(BY_NAME["ServiceAccount"], made)


def events(desk: Desk) -> list[Object]:
    return [one.body for (kind, *_), one in desk.server.objects.items() if kind == "Event"]


async def test_it_leaves_its_name_and_goes_on_where_that_stands(desk: Desk) -> None:
    resource(desk.server)
    ours = acting(desk)
    await looks(desk, ours)
    assert name_on(desk) == OURS
    resource(desk.server, tiers__decode__replicas=2)
    assert "PATCH Deployment shapes-decode" in await looks(desk, ours)


async def test_one_that_was_taken_over_from_writes_nothing_but_one_event(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    resource(desk.server)
    ours = acting(desk)
    await looks(desk, ours)
    await looks(desk, ours)
    taken_over(desk)
    resource(desk.server, tiers__decode__replicas=2)
    assert [one.split()[:2] for one in await looks(desk, ours)] == [["POST", "Event"]]
    assert await looks(desk, ours) == []
    (event,) = events(desk)
    assert (event["type"], event["reason"]) == ("Warning", "AnotherOperator")
    assert event["note"].startswith(
        "the operator in namespace others has taken it over, so the one in namespace ours leaves it"
    )
    assert event["regarding"]["name"] == "shapes"
    assert f"n/shapes: {event['note']}" in caplog.text


async def test_one_that_comes_later_takes_over_and_says_so_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    resource(desk.server)
    await looks(desk, acting(desk, OTHERS))
    ours = acting(desk)
    await looks(desk, ours)
    await looks(desk, ours)
    assert name_on(desk) == OURS
    assert caplog.text.count("takes over n/shapes from the operator in namespace others") == 1


async def test_a_name_that_somebody_removed_is_put_back(desk: Desk) -> None:
    resource(desk.server)
    ours = acting(desk)
    await looks(desk, ours)
    await looks(desk, ours)
    taken_over(desk, by=None)
    await looks(desk, ours)
    assert name_on(desk) == OURS


async def test_a_resource_that_the_other_made_anew_is_one_that_was_never_ours(desk: Desk) -> None:
    resource(desk.server)
    ours = acting(desk)
    await looks(desk, ours)
    await looks(desk, ours)
    for kind, namespace, name in tuple(desk.server.objects):
        desk.server.remove(BY_NAME[kind], namespace, name)
    await looks(desk, ours)
    resource(desk.server)
    await looks(desk, acting(desk, OTHERS))
    await looks(desk, ours)
    assert name_on(desk) == OURS
    assert all(event["reason"] != "AnotherOperator" for event in events(desk))


async def test_without_a_name_it_yields_to_nobody(desk: Desk) -> None:
    resource(desk.server)
    nameless = acting(desk, None)
    await looks(desk, nameless)
    assert name_on(desk) is None
    taken_over(desk)
    resource(desk.server, tiers__decode__replicas=2)
    assert "PATCH Deployment shapes-decode" in await looks(desk, nameless)
