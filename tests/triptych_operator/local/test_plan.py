import pytest
from mms_builders import service
from triptych_contract.errors import InvalidRequest
from triptych_operator.local.plan import deaths_in_a_row, plan_locally, restart_delay


def test_there_is_a_process_for_every_pod_and_one_gateway_last() -> None:
    given = service(
        tiers__encoder__replicas=2, tiers__decode__replicas=2, tiers__gateway__replicas=3
    )
    assert [process.name for process in plan_locally(given, 2).processes] == [
        "encoder-0", "encoder-1", "prefill-0", "decode-0", "decode-1", "gateway-0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cores", "asked", "threads"), [(2, 0, 1), (6, 0, 2), (16, 0, 5), (16, 4, 4), (1, 0, 1)]
)
def test_workers_share_the_cores_unless_told_otherwise(
    cores: int, asked: int, threads: int
) -> None:
    assert plan_locally(service(), cores, asked).threads == threads


@pytest.mark.parametrize("field", ["source", "encoder"])
def test_a_claim_is_refused_since_there_is_no_cluster(field: str) -> None:
    given = service(
        **{f"model__{field}": "pvc://c/p"}
        if field == "source"
        else {"model__encoder": {"source": "pvc://c/p", "revision": "1"}}
    )
    with pytest.raises(InvalidRequest, match=f"spec.model.*{field}.*is a claim in a cluster"):
        plan_locally(given, 2)


def test_a_process_that_keeps_dying_is_restarted_ever_more_slowly_up_to_a_bound() -> None:
    delays = [restart_delay(deaths) for deaths in (1, 2, 3, 4, 5, 6, 1000)]
    assert delays == [1, 2, 4, 8, 16, 30, 30]


def test_a_process_that_ran_steadily_begins_with_a_short_delay_again() -> None:
    assert deaths_in_a_row(5, ran_seconds=59) == 6
    assert deaths_in_a_row(5, ran_seconds=60) == 1
