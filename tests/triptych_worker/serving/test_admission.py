from __future__ import annotations

import asyncio

import pytest
from triptych_contract.errors import Overloaded, TooLarge, Unavailable
from triptych_worker.serving.admission import Admission, ByteBudget, State


async def test_a_worker_takes_work_only_between_its_start_and_its_drain() -> None:
    admission = Admission()
    with pytest.raises(Unavailable, match="starting"), admission.call():
        pass
    admission.open()
    with admission.call():
        assert admission.running == 1
    admission.drain()
    with pytest.raises(Unavailable, match="draining; use another pod"), admission.call():
        pass


async def test_a_drain_that_came_first_is_not_undone_by_the_end_of_loading() -> None:
    admission = Admission()
    admission.drain()
    admission.open()
    assert admission.state is State.DRAINING


async def test_it_is_idle_when_the_last_call_has_ended_however_it_ended() -> None:
    admission = Admission()
    admission.open()
    await admission.idle()
    with pytest.raises(ZeroDivisionError), admission.call(), admission.call():
        waiting = asyncio.ensure_future(admission.idle())
        await asyncio.sleep(0)
        assert not waiting.done()
        raise ZeroDivisionError
    await waiting
    assert admission.running == 0


def test_bytes_are_held_until_the_call_ends_and_never_beyond_the_bound() -> None:
    budget = ByteBudget(100)
    with budget.reserve(60):
        with pytest.raises(Overloaded, match="60 of 100 bytes") as caught, budget.reserve(41):
            pass
        assert caught.value.retry_after > 0
        with budget.reserve(40):
            assert budget.used == 100
        assert budget.used == 60
    assert budget.used == 0


def test_what_can_never_fit_is_refused_for_good() -> None:
    with pytest.raises(TooLarge, match="bound of 100"), ByteBudget(100).reserve(101):
        pass
