import threading
import time

from triptych_worker.transfer.progress import Progress

OFTEN = 25  # looks in 0.9 s, of 1,800 that it makes at its best; 18 otherwise


class Looks:
    """Counts looks, and says when there were so many."""

    def __init__(self) -> None:
        self.count = 0
        self.changed = threading.Condition()

    def look(self) -> None:
        with self.changed:
            self.count += 1
            self.changed.notify_all()

    def come_to(self, count: int, seconds: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.count >= count, seconds)


def test_it_looks_seldom_while_nobody_reads() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    assert looks.come_to(1, seconds=60)
    time.sleep(0.3)
    progress.stop()

    assert looks.count <= 10


def test_an_announced_read_is_looked_after_at_once_and_often() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    assert looks.come_to(1, seconds=60)
    before = looks.count

    progress.announce("a")

    assert looks.come_to(before + OFTEN, seconds=0.9)
    progress.stop()


def test_it_looks_often_until_the_last_read_is_done() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    progress.announce("a")
    progress.announce("b")
    progress.done(["a", "unknown"])
    assert looks.come_to(looks.count + OFTEN, seconds=0.9)
    progress.done(["b"])
    before = looks.count
    time.sleep(0.3)
    progress.stop()

    assert looks.count - before <= 10


def test_nothing_looks_after_it_has_stopped() -> None:
    looks = Looks()
    progress = Progress(looks.look)
    progress.announce("a")
    progress.stop()
    after = looks.count
    time.sleep(0.1)

    assert looks.count == after
