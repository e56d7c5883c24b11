"""The encode stage over a real tensor store, with a vision part that does as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from encode_bench import DEADLINE, OTHER, OURS, WIDTH, Bench, bench_of, picture
from triptych_contract.errors import (
    FingerprintMismatch,
    InternalError,
    InvalidRequest,
    NonFinite,
    Overloaded,
    TooLarge,
    Unavailable,
)
from triptych_contract.names import Count, Metric, Stage
from triptych_worker.domain import Encoded

pytestmark = pytest.mark.torch


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = bench_of()
    yield made
    made.model.gate.set()
    await made.idle()
    made.close()
    made.store.check_integrity()


async def test_an_embedding_is_made_leased_and_measured(bench: Bench) -> None:
    encoded = await bench.stage.encode(picture(1.5, tokens=6), OURS)
    assert encoded.handle.shape == (6, WIDTH)
    assert encoded.handle.fingerprint == OURS
    assert not encoded.cached
    assert await bench.value(encoded) == 1.5
    assert encoded.times.counts == {Count.VISUAL_TOKENS: 6, Count.ENCODER_CACHE_HITS: 0}
    assert set(encoded.times.seconds) == {Stage.ENCODE_QUEUE, Stage.ENCODE}
    assert bench.observer.durations == {Stage.ENCODE_QUEUE: 1, Stage.ENCODE: 1}
    assert bench.observer.busy > 0
    assert bench.observer.totals == {Metric.IMAGES: 1, Metric.VISUAL_TOKENS: 6}


async def test_a_second_request_for_a_key_is_a_hit_that_says_what_it_saved(bench: Bench) -> None:
    first = await bench.stage.encode(picture(1.0), OURS)
    second = await bench.stage.encode(picture(1.0), OURS)
    assert second.cached
    assert second.times.counts[Count.ENCODER_CACHE_HITS] == 1
    assert second.handle.lease_id != first.handle.lease_id
    assert len(bench.model.batches) == 1
    assert bench.store.stats().hits == 1
    assert bench.store.stats().seconds_saved > 0


async def test_a_picture_that_nobody_had_is_one_miss(bench: Bench) -> None:
    item = picture(1.0)
    assert await bench.stage.lease([item.key], OURS) == [None]
    await bench.stage.encode(item, OURS)
    assert (bench.store.stats().hits, bench.store.stats().misses) == (0, 1)


async def test_an_embedding_whose_bytes_have_changed_is_made_again(bench: Bench) -> None:
    made = (await bench.stage.encode(picture(1.0), OURS)).handle
    with bench.store.reading(made.lease_id, made.key, OURS) as held:
        bench.store.arena.view(held.start, 1)[:] = b"!"
    assert await bench.stage.lease([made.key], OURS) != [None]  # nobody has found out
    assert await bench.stage.lease([made.key], OURS, verify=True) == [None]
    again = await bench.stage.encode(picture(1.0), OURS)
    assert await bench.value(again) == 1.0
    assert again.handle.checksum == made.checksum
    assert bench.model.batches == [[1.0], [1.0]]
    assert await bench.stage.lease([made.key], OURS, verify=True) != [None]


async def test_fifty_callers_of_one_key_share_one_forward_and_have_a_lease_each(
    bench: Bench,
) -> None:
    answers = await asyncio.gather(*(bench.stage.encode(picture(2.0), OURS) for _ in range(50)))
    assert bench.model.batches == [[2.0]]
    assert len({answer.handle.lease_id for answer in answers}) == 50
    assert [answer.cached for answer in answers] == [False] + [True] * 49
    assert bench.store.leases == 50
    assert bench.observer.totals[Metric.IMAGES] == 1


async def test_requests_that_wait_together_are_one_batch_within_the_budget(bench: Bench) -> None:
    bench.model.gate.clear()
    first = asyncio.create_task(bench.stage.encode(picture(1.0), OURS))
    await bench.busy()
    rest = [asyncio.create_task(bench.stage.encode(picture(v, 40), OURS)) for v in (2, 3, 4)]
    await asyncio.sleep(0)
    assert bench.stage.load().waiting == 3
    assert bench.stage.load().backlog_tokens == 120
    bench.model.gate.set()
    answers = await asyncio.gather(first, *rest)
    assert bench.model.batches == [[1.0], [2.0, 3.0], [4.0]]
    assert [await bench.value(answer) for answer in answers] == [1.0, 2.0, 3.0, 4.0]
    assert len(bench.model.threads) == 1
    assert threading.current_thread().name not in bench.model.threads


async def test_lease_joins_what_is_being_encoded_and_misses_the_rest(bench: Bench) -> None:
    held = await bench.stage.encode(picture(1.0), OURS)
    bench.model.entered.clear()  # by the picture before
    bench.model.gate.clear()
    running = asyncio.create_task(bench.stage.encode(picture(2.0), OURS))
    await bench.busy()
    keys = [held.handle.key, picture(3.0).key, picture(2.0).key]
    leasing = asyncio.create_task(bench.stage.lease(keys, OURS))
    await asyncio.sleep(0.01)
    assert not leasing.done()
    bench.model.gate.set()
    one, two, three = await leasing
    assert one is not None
    assert await bench.value(one) == 1.0
    assert two is None
    assert three is not None
    assert await bench.value(three) == 2.0
    await running
    assert bench.store.stats().misses == 1


async def test_the_first_caller_of_a_key_may_go_without_harm_to_the_others(bench: Bench) -> None:
    bench.model.gate.clear()
    first = asyncio.create_task(bench.stage.encode(picture(5.0), OURS))
    await bench.busy()
    second = asyncio.create_task(bench.stage.encode(picture(5.0), OURS))
    await asyncio.sleep(0)
    first.cancel()
    bench.model.gate.set()
    assert await bench.value(await second) == 5.0
    with pytest.raises(asyncio.CancelledError):
        await first
    assert bench.store.leases == 1


async def test_what_nobody_waits_for_any_more_is_not_encoded(bench: Bench) -> None:
    bench.model.gate.clear()
    first = asyncio.create_task(bench.stage.encode(picture(1.0), OURS))
    await bench.busy()
    second = asyncio.create_task(bench.stage.encode(picture(2.0), OURS))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    assert bench.stage.load().waiting == 0
    bench.model.gate.set()
    await first
    assert bench.model.batches == [[1.0]]


async def test_an_encode_that_everybody_left_is_kept_unleased(bench: Bench) -> None:
    bench.model.gate.clear()
    only = asyncio.create_task(bench.stage.encode(picture(3.0), OURS))
    await bench.busy()
    only.cancel()
    await asyncio.wait([only])
    bench.model.gate.set()
    await bench.idle()
    assert bench.store.leases == 0
    (handle,) = await bench.stage.lease([picture(3.0).key], OURS)
    assert handle is not None
    assert await bench.value(handle) == 3.0


async def test_a_request_cancelled_as_its_answer_comes_leaves_no_lease(bench: Bench) -> None:
    tasks = [asyncio.create_task(bench.stage.encode(picture(4.0), OURS)) for _ in range(20)]
    async with asyncio.timeout(DEADLINE):
        while not bench.store.leases:  # noqa: ASYNC110 - a store tells nobody when it leases
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    await bench.idle()
    assert bench.store.leases == sum(isinstance(answer, Encoded) for answer in done)


async def test_a_picture_that_breaks_a_batch_fails_alone(bench: Bench) -> None:
    bench.model.gate.clear()
    first = asyncio.create_task(bench.stage.encode(picture(1.0), OURS))
    await bench.busy()
    rest = [asyncio.create_task(bench.stage.encode(picture(v), OURS)) for v in (2, 666, 3)]
    await asyncio.sleep(0)
    bench.model.gate.set()
    await asyncio.wait([first, *rest])
    assert [await bench.value(rest[place].result()) for place in (0, 2)] == [2.0, 3.0]
    error = rest[1].exception()
    assert isinstance(error, InternalError)
    assert "RuntimeError" in error.message
    assert "breaks the batch" not in error.message
    assert bench.model.batches == [[1.0], [2.0, 666.0, 3.0], [2.0], [666.0], [3.0]]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
async def test_what_is_not_finite_is_refused_alone_and_never_published(
    bench: Bench, value: float
) -> None:
    bench.model.gate.clear()
    first = asyncio.create_task(bench.stage.encode(picture(1.0), OURS))
    await bench.busy()
    bad = asyncio.create_task(bench.stage.encode(picture(value), OURS))
    good = asyncio.create_task(bench.stage.encode(picture(2.0), OURS))
    await asyncio.sleep(0)
    bench.model.gate.set()
    assert await bench.value(await good) == 2.0
    with pytest.raises(NonFinite):
        await bad
    await first
    assert await bench.stage.lease([picture(value).key], OURS) == [None]


async def test_an_error_reaches_all_who_wait_and_is_not_remembered(bench: Bench) -> None:
    key = "one key"
    asked = [bench.stage.encode(picture(666.0, key=key), OURS) for _ in range(3)]
    errors = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(error, InternalError) for error in errors)
    assert bench.model.batches == [[666.0]]
    assert await bench.value(await bench.stage.encode(picture(7.0, key=key), OURS)) == 7.0


async def test_a_lease_on_an_encode_that_fails_is_a_miss(bench: Bench) -> None:
    failing = asyncio.create_task(bench.stage.encode(picture(666.0), OURS))
    await asyncio.sleep(0)
    assert await bench.stage.lease([picture(666.0).key], OURS) == [None]
    with pytest.raises(InternalError):
        await failing


async def test_rows_that_differ_from_those_announced_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="5 embedding rows, 4 are announced"):
        await bench.stage.encode(picture(13.0, tokens=4), OURS)
    await bench.stage.encode(picture(1.0, tokens=4), OURS)
    with pytest.raises(InvalidRequest, match="4 embedding rows, 3 are announced"):
        await bench.stage.encode(picture(1.0, tokens=3), OURS)
    with pytest.raises(InvalidRequest, match="at least 1"):
        await bench.stage.encode(picture(2.0, tokens=0), OURS)
    assert bench.store.leases == 1


async def test_another_fingerprint_is_refused_by_both_names(bench: Bench) -> None:
    for call in (bench.stage.encode(picture(1.0), OTHER), bench.stage.lease([bytes(32)], OTHER)):
        with pytest.raises(FingerprintMismatch) as caught:
            await call
        assert OURS in caught.value.message
        assert OTHER in caught.value.message
        assert caught.value.retryable


async def test_a_full_queue_refuses_with_a_hint_and_goes_on() -> None:
    bench = bench_of(queue_visual_tokens=10)
    bench.model.gate.clear()
    first = asyncio.create_task(bench.stage.encode(picture(1.0), OURS))
    await bench.busy()
    second = asyncio.create_task(bench.stage.encode(picture(2.0, tokens=8), OURS))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as caught:
        await bench.stage.encode(picture(3.0), OURS)
    assert caught.value.retry_after > 0
    bench.model.gate.set()
    await asyncio.gather(first, second)
    assert await bench.value(await bench.stage.encode(picture(3.0), OURS)) == 3.0
    bench.close()


async def test_pictures_beyond_the_cache_or_the_memory_for_pixels_are_too_large() -> None:
    bench = bench_of(cache_bytes=1024, inflight_bytes=6)
    with pytest.raises(TooLarge, match="cache_bytes"):
        await bench.stage.encode(picture(1.0, tokens=1024 // (4 * WIDTH) + 1), OURS)
    with pytest.raises(TooLarge, match="inflight_bytes"):
        await bench.stage.encode(picture(1.0), OURS)
    assert bench.model.batches == []
    bench.close()


async def test_without_a_cache_everybody_is_answered_and_nothing_is_kept() -> None:
    bench = bench_of(cache_bytes=0, inflight_bytes=1 << 20)
    for _ in range(2):
        asked = [bench.stage.encode(picture(1.0), OURS) for _ in range(3)]
        answers = await asyncio.gather(*asked)
        assert [await bench.value(answer) for answer in answers] == [1.0] * 3
        bench.store.release([answer.handle.lease_id for answer in answers])
        assert bench.store.arena.used_bytes == 0
    assert bench.model.batches == [[1.0], [1.0]]
    assert await bench.stage.lease([picture(1.0).key], OURS) == [None]
    bench.close()


async def test_a_picture_beyond_the_batch_budget_runs_alone() -> None:
    bench = bench_of(batch_visual_tokens=8)
    values = {1.0: 4, 2.0: 50, 3.0: 4}
    asked = [bench.stage.encode(picture(value, tokens), OURS) for value, tokens in values.items()]
    answers = await asyncio.gather(*asked)
    assert [await bench.value(answer) for answer in answers] == [1.0, 2.0, 3.0]
    assert bench.model.batches == [[1.0], [2.0], [3.0]]
    bench.close()


async def test_leases_that_fill_the_store_are_an_overload_until_released() -> None:
    bench = bench_of(cache_bytes=256)
    held = await bench.stage.encode(picture(1.0, tokens=8), OURS)
    with pytest.raises(Overloaded):
        await bench.stage.encode(picture(2.0, tokens=8), OURS)
    bench.store.release([held.handle.lease_id])
    assert await bench.value(await bench.stage.encode(picture(2.0, tokens=8), OURS)) == 2.0
    bench.close()


async def test_closing_with_work_queued_answers_everybody() -> None:
    bench = bench_of(pass_tokens=4)
    bench.model.gate.clear()
    asked = [asyncio.create_task(bench.stage.encode(picture(v), OURS)) for v in (1, 2)]
    await bench.busy()
    bench.close()
    bench.model.gate.set()
    async with asyncio.timeout(DEADLINE):
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[1], Unavailable)
    assert bench.stage.load().running == 0
