from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mms_builders import manifest, service
from triptych_contract.names import Tier
from triptych_operator.api.manifests import validate_service
from triptych_operator.api.status import UNSEEN, Condition, ConditionType, ServiceStatus
from triptych_operator.observed.snapshot import Pod, Snapshot, TierSnapshot
from triptych_operator.observed.troubles import MESSAGE_LIMIT, Reason, Trouble
from triptych_operator.status.conditions import (
    status_of,
    status_of_invalid,
    status_of_left_alone,
)

SERVICE = service(tiers__decode__replicas=2)
REVISIONS = dict.fromkeys(Tier, "new")
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
CRASH = Trouble(Reason.CRASH_LOOP, "container triptych keeps ending")
NO_ROOM = Trouble(Reason.UNSCHEDULABLE, "no node has a GPU")


def complete(tier: Tier, pods: int = 1) -> TierSnapshot:
    ready = tuple(Pod(f"{tier}-{index}", "new", ready=True) for index in range(pods))
    return TierSnapshot(tier, True, pods, "new", pods=ready, rolled_out=True)


def snapshot(decode: TierSnapshot | None = None) -> Snapshot:
    """All tiers complete but ``decode``, which is as given."""
    others = (complete(tier) for tier in (Tier.ENCODER, Tier.PREFILL, Tier.GATEWAY))
    return Snapshot((*others, decode or complete(Tier.DECODE, 2)))


def status(seen: Snapshot, previous: ServiceStatus | None = None, now: str = NOW) -> ServiceStatus:
    return status_of(SERVICE, REVISIONS, seen, previous or ServiceStatus(), now)


def condition(made: ServiceStatus, type_: ConditionType) -> Condition | None:
    return next((one for one in made.conditions if one.type is type_), None)


def said(made: ServiceStatus, type_: ConditionType) -> tuple[str, str]:
    found = condition(made, type_)
    assert found is not None
    return found.status, found.reason


def test_it_is_ready_when_every_pod_of_every_tier_is() -> None:
    made = status(snapshot())
    assert said(made, ConditionType.READY) == ("True", "AllTiersReady")
    assert [one.type for one in made.conditions] == [
        ConditionType.READY,
        ConditionType.ENCODER_READY,
        ConditionType.PREFILL_READY,
        ConditionType.DECODE_READY,
        ConditionType.GATEWAY_READY,
    ]
    assert [(tier.name, tier.pods) for tier in made.tiers] == [
        ("encoder", "1/1"), ("prefill", "1/1"), ("decode", "2/2"), ("gateway", "1/1")
    ]  # fmt: skip
    assert made.url == "http://shapes-gateway.default.svc:8000"


def test_it_is_at_work_while_tiers_of_the_former_topology_still_stand() -> None:
    seen = snapshot()
    former = replace(complete(Tier.FUSED), revision="old")
    made = status(replace(seen, tiers=(*seen.tiers, former)))
    assert said(made, ConditionType.READY) == ("True", "AllTiersReady")
    assert said(made, ConditionType.RECONCILING) == ("True", "RollingOut")
    going = condition(made, ConditionType.RECONCILING)
    assert going is not None
    assert going.message == "fused of the former topology: to be deleted"
    assert [tier.name for tier in made.tiers] == ["encoder", "prefill", "decode", "gateway"]


NEW, OLD = Pod("a", "new", ready=True), Pod("b", "old", ready=True)


def decode_of(desired: int, revision: str, *pods: Pod) -> TierSnapshot:
    return TierSnapshot(Tier.DECODE, True, desired, revision, pods=pods, rolled_out=True)


INCOMPLETE = {
    "no deployment yet": TierSnapshot(Tier.DECODE),
    "a pod is missing": decode_of(2, "new", NEW),
    "a pod is not ready": decode_of(2, "new", NEW, Pod("b", "new")),
    "an old pod makes up the number": decode_of(2, "new", NEW, OLD),
    "an old pod is left over": decode_of(2, "new", NEW, replace(NEW, name="c"), OLD),
    "one pod is too many": decode_of(1, "new", NEW, replace(NEW, name="c")),
    "the change is not applied yet": decode_of(1, "old", OLD),
    "the deployment was changed by hand": decode_of(1, "hand", NEW),
    "the one ready pod is going": decode_of(1, "new", replace(NEW, terminating=True)),
    "its Deployment knows of no such pod": replace(decode_of(1, "new", NEW), rolled_out=False),
}


@pytest.mark.parametrize("decode", INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_it_is_not_ready_while(decode: TierSnapshot) -> None:
    made = status(snapshot(decode))
    assert said(made, ConditionType.READY) == ("False", "TiersNotReady")
    assert said(made, ConditionType.RECONCILING) == ("True", "RollingOut")
    assert said(made, ConditionType.DECODE_READY) == ("False", "RollingOut")
    assert said(made, ConditionType.ENCODER_READY) == ("True", "PodsReady")
    assert condition(made, ConditionType.STALLED) is None


def test_an_old_pod_that_drains_does_not_hold_up_readiness() -> None:
    going = replace(OLD, terminating=True)
    made = status(snapshot(decode_of(1, "new", NEW, going)))
    assert said(made, ConditionType.READY) == ("True", "AllTiersReady")


def test_the_message_says_which_tier_lacks_what() -> None:
    made = status(snapshot(decode_of(2, "new", NEW, OLD)))
    found = condition(made, ConditionType.READY)
    assert found is not None
    assert found.message == "decode: 1 of 2 pods ready, 1 of an older revision"


def test_the_message_says_what_a_tier_waits_for() -> None:
    made = status(snapshot(decode_of(2, "new", NEW, Pod("b", "new", trouble=NO_ROOM))))
    found = condition(made, ConditionType.READY)
    assert found is not None
    assert found.message == f"decode: 1 of 2 pods ready (Unschedulable: {NO_ROOM.message})"


def test_long_causes_of_all_tiers_fit_into_the_message() -> None:
    cause = Trouble(Reason.UNSCHEDULABLE, "n" * MESSAGE_LIMIT)
    waiting = (
        replace(complete(tier), pods=(Pod(tier, "new", trouble=cause),))
        for tier in (Tier.ENCODER, Tier.PREFILL, Tier.DECODE, Tier.GATEWAY)
    )
    found = condition(status(Snapshot(tiers=tuple(waiting))), ConditionType.READY)
    assert found is not None
    assert len(found.message) == 4 * MESSAGE_LIMIT


def test_a_cause_that_stays_stalls_it_with_its_message() -> None:
    pods = (Pod("a", "new", trouble=NO_ROOM), Pod("b", "new", trouble=CRASH))
    made = status(snapshot(decode_of(2, "new", *pods)))
    for type_, message in (
        (ConditionType.READY, f"decode: {CRASH.message}"),
        (ConditionType.STALLED, f"decode: {CRASH.message}"),
        (ConditionType.DECODE_READY, CRASH.message),
    ):
        found = condition(made, type_)
        assert found is not None
        assert (found.reason, found.message) == (CRASH.reason, message)
    assert condition(made, ConditionType.RECONCILING) is None


def test_a_cause_of_pods_that_are_about_to_be_replaced_is_told_no_more() -> None:
    failed = Pod("a", "old", trouble=CRASH)
    made = status(snapshot(decode_of(1, "new", failed, Pod("b", "new"))))
    assert said(made, ConditionType.DECODE_READY) == ("False", "RollingOut")
    assert condition(made, ConditionType.STALLED) is None
    made = status(snapshot(decode_of(1, "new", failed, Pod("b", "new", trouble=NO_ROOM))))
    assert said(made, ConditionType.DECODE_READY) == ("False", "Unschedulable")
    made = status(snapshot(decode_of(1, "old", failed)))
    assert said(made, ConditionType.DECODE_READY) == ("False", CRASH.reason), "nothing replaces it"


def test_a_cause_that_may_pass_is_told_but_does_not_stall() -> None:
    made = status(snapshot(decode_of(1, "new", Pod("a", "new", trouble=NO_ROOM))))
    assert said(made, ConditionType.DECODE_READY) == ("False", "Unschedulable")
    assert said(made, ConditionType.RECONCILING) == ("True", "RollingOut")


def test_a_refusal_of_the_server_stalls_even_while_old_pods_serve() -> None:
    refusal = Trouble("Forbidden", "exceeded quota: gpus", lasting=True)
    made = status(replace(snapshot(), refusal=refusal))
    assert said(made, ConditionType.READY) == ("False", "Forbidden")
    assert said(made, ConditionType.STALLED) == ("True", "Forbidden")


def test_a_server_that_is_busy_does_not_stall() -> None:
    refusal = Trouble("TooManyRequests", "come back later")
    made = status(replace(snapshot(), refusal=refusal))
    assert said(made, ConditionType.READY) == ("False", "TooManyRequests")
    assert said(made, ConditionType.RECONCILING) == ("True", "TooManyRequests")
    assert condition(made, ConditionType.STALLED) is None


def test_before_a_tier_exists_it_is_counted_by_what_the_resource_asks_for() -> None:
    made = status(Snapshot())
    assert [(tier.name, tier.pods) for tier in made.tiers] == [
        ("encoder", "0/1"), ("prefill", "0/1"), ("decode", "0/2"), ("gateway", "0/1")
    ]  # fmt: skip


def test_a_new_resource_that_is_left_alone_stalls() -> None:
    made = status_of_left_alone(Reason.DEFINITION_OLDER, "upgrade it", ServiceStatus(), NOW)
    assert said(made, ConditionType.STALLED) == ("True", "DefinitionOlderThanOperator")
    assert made.observed_generation == UNSEEN


def test_a_spec_that_cannot_be_read_stalls_and_keeps_what_was_known() -> None:
    before = status(snapshot())
    made = status_of_invalid(7, "spec.topology: required", before, LATER)
    assert said(made, ConditionType.STALLED) == ("True", "InvalidSpec")
    assert said(made, ConditionType.READY) == ("False", "InvalidSpec")
    assert made.observed_generation == 7
    assert made.tiers == before.tiers


def test_a_blind_autoscaler_is_told_beside_its_tier_and_does_not_make_it_unready() -> None:
    blind = Trouble(Reason.SCALING_BLIND, "no metrics")
    made = status(snapshot(replace(complete(Tier.DECODE, 2), scaling=blind)))
    assert said(made, ConditionType.READY) == ("True", "AllTiersReady")
    assert made.tiers[2].limited_by == "AutoscalerCannotRead: no metrics"


def test_times_move_only_when_a_condition_flips() -> None:
    first = status(snapshot())
    same = status(snapshot(), first, LATER)
    assert same == first
    broken = status(snapshot(decode_of(2, "new", NEW)), first, LATER)
    times = {one.type: one.last_transition_time for one in broken.conditions}
    assert times[ConditionType.READY] == times[ConditionType.DECODE_READY] == LATER
    assert times[ConditionType.ENCODER_READY] == NOW


def test_a_new_reason_alone_moves_no_time() -> None:
    first = status(snapshot(decode_of(2, "new", NEW)))
    second = status(
        snapshot(decode_of(2, "new", NEW, Pod("b", "new", trouble=CRASH))),
        first,
        LATER,
    )
    found = condition(second, ConditionType.READY)
    assert found is not None
    assert (found.reason, found.last_transition_time) == (CRASH.reason, NOW)


def test_every_word_is_about_the_generation_that_was_read() -> None:
    body = manifest()
    body["metadata"]["generation"] = 7
    made = status_of(validate_service(body, "test"), REVISIONS, snapshot(), ServiceStatus(), NOW)
    assert made.observed_generation == 7
    assert {one.observed_generation for one in made.conditions} == {7}


PODS = st.builds(
    Pod,
    name=st.text("abc", min_size=1, max_size=3),
    revision=st.sampled_from(["new", "old"]),
    ready=st.booleans(),
    terminating=st.booleans(),
    trouble=st.sampled_from([None, CRASH, NO_ROOM]),
)
TIERS = st.builds(
    TierSnapshot,
    tier=st.just(Tier.DECODE),
    present=st.just(True),
    desired=st.integers(0, 3),
    revision=st.sampled_from(["new", "old", ""]),
    pods=st.lists(PODS, max_size=4).map(tuple),
    rolled_out=st.booleans(),
)


@given(TIERS)
def test_ready_reconciling_and_stalled_never_contradict_each_other(decode: TierSnapshot) -> None:
    made = status(snapshot(decode))
    ready = said(made, ConditionType.READY)[0] == "True"
    staying = [pod for pod in decode.pods if not pod.terminating]
    assert ready == (
        decode.rolled_out
        and decode.revision == "new"
        and len(staying) == decode.desired > 0
        and all(pod.ready and pod.revision == "new" for pod in staying)
    )
    working = condition(made, ConditionType.RECONCILING) is not None
    stalled = condition(made, ConditionType.STALLED) is not None
    assert [ready, working, stalled].count(True) == 1


def test_a_status_reads_back_as_it_was_written() -> None:
    made = status(snapshot(decode_of(2, "new", NEW, OLD)))
    text = made.model_dump_json(by_alias=True, exclude_defaults=True)
    assert "lastTransitionTime" in text
    assert ServiceStatus.model_validate_json(text) == made
