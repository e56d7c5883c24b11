from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest
import torch
from triptych_worker.cores import Cores, alone

pytestmark = pytest.mark.torch

SECONDS = 60

OTHERS_COME_AND_GO = """
import threading, torch
from triptych_worker.cores import Cores, alone
cores = Cores(3)
alone()
cores.submit(lambda _: None).result()
new = threading.Thread(target=lambda: print(torch.get_num_threads()))
set = threading.Thread(target=alone)
for thread in (set, new):
    thread.start()
    thread.join()
print(torch.get_num_threads())
print(cores.submit(lambda _: torch.get_num_threads()).result())
print(cores.submit(lambda _: torch.get_num_threads(), threads=2).result())
print(cores.submit(lambda _: torch.get_num_threads()).result())
"""


@pytest.fixture
def cores() -> Iterator[Cores]:
    made = Cores(2)
    yield made
    made.close()


def test_turns_are_taken_one_at_a_time_in_the_order_of_asking(cores: Cores) -> None:
    order: list[tuple[int, bool]] = []
    gate = threading.Event()
    first = cores.submit(lambda waited: gate.wait(SECONDS) and not waited)
    later = [
        cores.submit(lambda waited, number=number: order.append((number, waited)))
        for number in range(3)
    ]
    assert order == []
    gate.set()
    assert first.result(SECONDS)
    for each in later:
        each.result(SECONDS)
    assert order == [(0, True), (1, True), (2, True)]
    assert cores.submit(lambda waited: not waited).result(SECONDS), "nobody was before it"


def test_an_error_ends_the_turn_of_its_own_work_alone(cores: Cores) -> None:
    with pytest.raises(ZeroDivisionError):
        cores.submit(lambda _: 1 / 0).result(SECONDS)
    assert cores.submit(lambda waited: not waited).result(SECONDS)


def test_what_has_not_begun_at_the_end_is_cancelled(cores: Cores) -> None:
    begun, gate = threading.Event(), threading.Event()

    def work(_: bool) -> bool:
        begun.set()
        return gate.wait(SECONDS)

    running = cores.submit(work)
    assert begun.wait(SECONDS)
    waiting = cores.submit(lambda _: None)
    cores.close()
    gate.set()
    assert running.result(SECONDS)
    with pytest.raises(CancelledError):
        waiting.result(SECONDS)


def test_others_compute_alone_and_change_nothing_of_the_one_that_shares() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OTHERS_COME_AND_GO],
        stdout=subprocess.PIPE, timeout=SECONDS, check=True, text=True,
    )  # fmt: skip
    new, main, shared, fewer, again = map(int, ran.stdout.split())
    assert (main, shared, fewer, again) == (1, 3, 2, 3)
    assert new == 1, "the default of the process is to compute alone"


def test_all_of_torchs_threads_share_unless_a_number_is_given() -> None:
    before = torch.get_num_threads()
    cores = Cores()
    assert cores.threads == before
    seen = threading.Thread(target=alone)
    seen.start()
    seen.join()
    assert torch.get_num_threads() == before, "another thread's number is its own"
    cores.close()
