import statistics
import threading
import time
from itertools import pairwise

import pytest
from triptych_worker.transfer import progress as module
from triptych_worker.transfer.progress import Progress

SECONDS = 60.0  # for what takes none; on a machine that others use too
SELDOM = 0.3 / 10  # seconds from look to look, at the least; it waits for 0.05
OFTEN = 0.9 / 25  # and at the most; it waits for 0.0005


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read is likely for as long as a busy machine may hold us up."""
    monkeypatch.setattr(module, "_LIKELY", SECONDS)


class Looks:
    """When it has looked."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.changed = threading.Condition()

    def look(self) -> None:
        with self.changed:
            self.times.append(time.monotonic())
            self.changed.notify_all()

    def pause(self, looks: int) -> float:
        """Seconds between two of the next looks, in the median: no clock beside tells how often it
        looks when the machine stands still for a while."""
        with self.changed:
            before = len(self.times)
            assert self.changed.wait_for(lambda: len(self.times) > before + looks, SECONDS)
            times = self.times[before:]
        return statistics.median(after - at for at, after in pairwise(times))


def test_it_looks_seldom_while_nobody_reads() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    assert looks.pause(6) >= SELDOM
    progress.stop()


def test_an_announced_read_is_looked_after_at_once_and_often() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    assert looks.pause(1) >= SELDOM

    progress.announce("a")

    assert looks.pause(25) <= OFTEN
    progress.stop()


def test_it_looks_often_until_the_last_read_is_done() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    progress.announce("a")
    progress.announce("b")
    progress.done(["a", "unknown"])
    assert looks.pause(25) <= OFTEN
    progress.done(["b"])
    assert looks.pause(6) >= SELDOM
    progress.stop()


def test_nothing_looks_after_it_has_stopped() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    progress.announce("a")
    progress.stop()
    after = len(looks.times)
    time.sleep(0.1)

    assert len(looks.times) == after
