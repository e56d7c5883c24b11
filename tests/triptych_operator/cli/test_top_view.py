import io
from collections.abc import Mapping

import pytest
from mms_builders import service
from rich.console import Console
from triptych_contract.names import Cache, Metric, Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.cli.top_view import SignalRow, TierRow, TopView, rendered, view_of
from triptych_operator.scaling.policy import Policy, policy_of
from triptych_operator.signals.history import History
from triptych_operator.signals.measures import PodTold
from triptych_operator.signals.page import Reading, Series

ON_BACKLOG = {"max": 5, "metrics": [{"signal": "BacklogTokens", "target": "1k"}]}
HITS, MISSES = Series(Metric.CACHE_HITS, "encoder"), Series(Metric.CACHE_MISSES, "encoder")
COUNT = Series(f"{Metric.TTFT_SECONDS}_count", "multimodal")
SUM = Series(f"{Metric.TTFT_SECONDS}_sum", "multimodal")


def policy(**changes: object) -> Policy:
    return policy_of(service(tiers__encoder__autoscaling=ON_BACKLOG, **changes))


def told(before: Mapping[Series, float], after: Mapping[Series, float]) -> History:
    history = History(60.0)
    history.add(Reading(0.0, before))
    history.add(Reading(10.0, after))
    return history


def encoder(*histories: History | None) -> TopView:
    pods = [PodTold(f"e-{number}", ready=True, history=one) for number, one in enumerate(histories)]
    return view_of("n/s", policy(), {Tier.ENCODER: pods}, {Tier.ENCODER: 2}, None)


def test_a_tier_shows_its_pods_and_each_share_of_what_it_scales_on() -> None:
    backlog = Series(Metric.BACKLOG_TOKENS)
    view = encoder(told({}, {backlog: 2500.0}), told({}, {backlog: 500.0}))
    row = view.tiers[0]
    assert (row.tier, row.ready, row.desired, row.silent) == (Tier.ENCODER, 2, 2, 0)
    assert row.signals == (SignalRow(Signal.BACKLOG_TOKENS, 1500.0, 1000.0, 1.5),)
    assert view.limiting is Tier.ENCODER


def test_what_no_pod_tells_is_not_known_and_limits_nothing() -> None:
    view = encoder(None, None)
    row = view.tiers[0]
    assert row.silent == 2
    assert row.signals == (SignalRow(Signal.BACKLOG_TOKENS, None, 1000.0, None),)
    assert (view.limiting, row.wait, row.hits) == (None, None, {})


def test_hit_rates_are_of_all_pods_and_of_lately() -> None:
    view = encoder(
        told({HITS: 100.0, MISSES: 900.0}, {HITS: 103.0, MISSES: 900.0}),
        told({}, {MISSES: 1.0}),
    )
    assert view.tiers[0].hits == {Cache.ENCODER: 0.75}


def test_the_time_to_the_first_token_is_told_with_pictures_and_in_all() -> None:
    gateway = PodTold("g", ready=True, history=told({}, {COUNT: 4.0, SUM: 6.0}))
    view = view_of("n/s", policy(), {Tier.GATEWAY: [gateway]}, {}, None)
    assert (view.first_token, view.first_token_with_pictures) == (1.5, 1.5)


def test_a_service_without_autoscaling_shows_what_it_would_scale_on() -> None:
    view = view_of("n/s", policy_of(service(topology="Fused")), {}, {}, None)
    assert [row.tier for row in view.tiers] == [Tier.FUSED, Tier.GATEWAY]
    assert all(row.signals for row in view.tiers)


VIEW = TopView(
    "prod/qwen   FullSplit",
    (
        TierRow(
            Tier.ENCODER,
            ready=12,
            desired=112,
            silent=11,
            signals=(
                SignalRow(Signal.PICTURE_REQUESTS_PER_SECOND, 1234.5, 8192.0, 0.15),
                SignalRow(Signal.BACKLOG_TOKENS, 1.5e6, 16384.0, 91.0),
                SignalRow(Signal.QUEUE_WAIT, 0.0123, 0.5, 0.02),
                SignalRow(Signal.TIME_TO_FIRST_TOKEN, None, 2.0, None),
            ),
            wait=0.0123,
            hits={Cache.ENCODER: 1.0},
        ),
        TierRow(Tier.PREFILL, 1, 1, 0, (), 99.94, {Cache.EMBEDDING: 0.126, Cache.KV_PREFIX: 0.44}),
    ),
    Tier.ENCODER,
    0.4804,
    1.31,
)


def text(view: TopView, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), legacy_windows=False)
    with console.capture() as captured:
        console.print(rendered(view))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_of_80_columns_shows_all_of_it(width: int) -> None:
    assert text(VIEW, width) == [
        "prod/qwen   FullSplit   limited by encoder",
        "",
        "TIER    PODS      SIGNAL                    VALUE TARGET           WAIT HITS",
        "encoder 12/112    PictureRequestsPerSecond   1234   8192 ━──────  12 ms enc 100%",
        "        11 silent BacklogTokens             1500k  16.4k ━━━━━━━",
        "                  QueueWait                0.0123    0.5 ───────",
        "                  TimeToFirstToken              ?      2",
        "prefill 1/1                                                      99.9 s emb 13%",
        "                                                                        kv 44%",
        "",
        "first token after 480 ms, with pictures after 1.3 s",
    ]


def test_pods_that_are_not_there_hold_it_up_too() -> None:
    rows = (
        TierRow(Tier.FUSED, ready=0, desired=1, silent=0, signals=(), wait=None, hits={}),
        TierRow(Tier.GATEWAY, ready=1, desired=1, silent=0, signals=(), wait=None, hits={}),
    )
    head = text(TopView("n/s", rows, None, None, None), 80)[0]
    assert head == "n/s   not ready: fused; see triptych status"


def test_where_nothing_happens_it_says_so() -> None:
    view = TopView("n/s", (), None, None, None)
    assert text(view, 80)[0] == "n/s   nothing limits"
    assert text(view, 80)[-1] == "no first token in the last 30 s"
