import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from triptych_gateway.processors.cache import Held, ProcessorCache  # noqa: E402
from triptych_gateway.processors.pictures import Layout, Processed, runs_of  # noqa: E402

LAYOUT = Layout((1, 2, 2), ((1, 2),), (1, 2, 4))


def processed(size: int) -> Processed:
    return Processed({"pixel_values": torch.zeros(size, dtype=torch.uint8)}, LAYOUT)


def key(name: str, fingerprint: str = "f") -> tuple[str, bytes]:
    return fingerprint, name.encode()


def test_the_least_recently_used_picture_makes_room():
    cache = ProcessorCache(100)
    for name in "ab":
        cache.put(key(name), processed(50), 0.5)
    assert cache.get(key("a")) is not None
    cache.put(key("c"), processed(40), 0.5)
    cache.check()
    assert cache.get(key("b")) is None
    assert cache.get(key("a")) is not None
    assert (cache.hits, cache.misses, cache.evictions, cache.seconds_saved) == (2, 1, 1, 1.0)


def test_a_layout_outlives_its_tensors():
    cache = ProcessorCache(10)
    cache.put(key("a"), processed(50), 0.5)
    assert cache.get(key("a")) is None
    assert cache.layout(key("a")) == LAYOUT
    assert cache.size_bytes == 0


def test_putting_a_picture_again_does_not_count_it_twice():
    cache = ProcessorCache(100)
    cache.put(key("a"), processed(50), 0.5)
    cache.put(key("a"), processed(60), 0.5)
    cache.check()
    assert cache.size_bytes == 60


def test_other_fingerprints_are_dropped_and_not_taken_in_again():
    cache = ProcessorCache(100)
    cache.put(key("a", "old"), processed(30), 0.5)
    cache.put(key("b", "new"), processed(40), 0.5)
    assert cache.holdings() == (Held("new", 1, 40), Held("old", 1, 30))
    assert cache.drop_others("new") == (1, 30)
    cache.put(key("c", "old"), processed(10), 0.5)
    cache.check()
    assert cache.holdings() == (Held("new", 1, 40),)
    assert cache.layout(key("a", "old")) is None


def test_runs_are_found_wherever_they_stand():
    assert runs_of((5, 1, 5, 5, 2, 5), 5) == ((0, 1), (2, 2), (5, 1))
    assert runs_of((1, 2), 5) == ()
