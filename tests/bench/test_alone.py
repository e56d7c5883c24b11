from bench.caches.alone import SETTINGS, Kind, name, tiers


def test_each_cache_is_alone_once_and_missing_once() -> None:
    assert [name(one) for one in SETTINGS] == [
        "none", "all", "processor alone", "embeddings alone", "prefixes alone",
        "all but processor", "all but embeddings", "all but prefixes",
    ]  # fmt: skip


def test_what_is_not_wanted_is_switched_off_wherever_it_is() -> None:
    off = {"capacity": 0}
    assert tiers(Kind) == {}
    assert tiers([Kind.PROCESSOR]) == {
        "encoder": {"cache": off}, "prefill": {"cache": off, "prefixCache": off}
    }  # fmt: skip
    assert tiers([Kind.EMBEDDINGS, Kind.PREFIXES]) == {"gateway": {"cache": off}}
