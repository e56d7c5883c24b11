from triptych_operator.api.status import CachesStatus, ServiceStatus
from triptych_operator.caches.holdings import Holding
from triptych_operator.cli.caches import lines
from triptych_operator.cli.resource import Found

NEW, OLD = "a" * 64, "b" * 64
CACHES = CachesStatus(fingerprint=NEW, epoch=3, last_flush_time="2026-01-01T00:00:00Z")


def found(caches: CachesStatus | None) -> Found:
    return Found("prod", "shapes", 1, "FullSplit", ServiceStatus(caches=caches))


def test_every_holding_is_told_and_what_another_encoder_made_is_marked() -> None:
    held = [
        Holding("shapes-encoder-1", "encoder", "encoder", NEW, 10),
        Holding("shapes-prefill-1", "prefill", "embedding", OLD, 2000),
        Holding("shapes-prefill-1", "prefill", "kv_prefix", "", 30),
    ]
    assert list(lines(found(CACHES), held)) == [
        "prod/shapes   encoder aaaaaaaaaaaa   epoch 3   flushed 2026-01-01T00:00:00Z",
        "",
        "POD               TIER     CACHE      ENCODER       BYTES",
        "shapes-encoder-1  encoder  encoder    aaaaaaaaaaaa  10",
        "shapes-prefill-1  prefill  embedding  bbbbbbbbbbbb  2000   other",
        "shapes-prefill-1  prefill  kv_prefix  any           30",
    ]


def test_before_the_first_flush_nothing_is_called_old() -> None:
    told = list(lines(found(None), [Holding("p", "encoder", "encoder", OLD, 1)]))
    assert told[0] == "prod/shapes   encoder unknown   epoch 0   flushed never"
    assert not told[-1].endswith("other")
