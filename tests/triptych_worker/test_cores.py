from __future__ import annotations

import threading

import pytest
from triptych_worker.cores import Cores

SECONDS = 10


def test_turns_are_taken_one_at_a_time_in_the_order_of_asking() -> None:
    cores, order = Cores(), []
    asked = [threading.Event() for _ in range(3)]

    def take(number: int) -> None:
        asked[number].set()
        with cores.turn() as waited:
            order.append((number, waited))

    with cores.turn() as waited:
        assert not waited
        threads = []
        for number in range(3):
            thread = threading.Thread(target=take, args=(number,))
            thread.start()
            assert asked[number].wait(SECONDS)
            while cores.asked <= number + 1:  # it is in the row
                pass
            threads.append(thread)
        assert order == []
    for thread in threads:
        thread.join(SECONDS)
    assert order == [(0, True), (1, True), (2, True)]
    with cores.turn() as waited:
        assert not waited


def test_an_error_ends_the_turn() -> None:
    cores = Cores()
    with pytest.raises(ValueError, match="broken"), cores.turn():
        raise ValueError("broken")
    with cores.turn() as waited:
        assert not waited
