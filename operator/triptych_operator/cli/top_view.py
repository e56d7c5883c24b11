"""What ``triptych top`` shows of a service, and how it looks in columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from triptych_contract.names import Cache, Metric, Tier

from triptych_operator.api.autoscaling import Signal
from triptych_operator.scaling.limiting import BEGINS, limiting_tier
from triptych_operator.scaling.policy import Policy, ratios
from triptych_operator.signals.history import History
from triptych_operator.signals.measures import PodTold, tier_signals
from triptych_operator.signals.page import Series
from triptych_operator.status.rounding import rounded

_BAR: Final = 7  # characters: the target is at five of them
_AT_TARGET: Final = 5
_SHORT: Final[Mapping[Cache, str]] = {
    Cache.PROCESSOR: "proc",
    Cache.ENCODER: "enc",
    Cache.EMBEDDING: "emb",
    Cache.KV_PREFIX: "kv",
}
_CACHES: Final[Mapping[Tier, tuple[Cache, ...]]] = {
    Tier.ENCODER: (Cache.ENCODER,),
    Tier.PREFILL: (Cache.EMBEDDING, Cache.KV_PREFIX),
    Tier.FUSED: (Cache.ENCODER, Cache.EMBEDDING, Cache.KV_PREFIX),
    Tier.GATEWAY: (Cache.PROCESSOR,),
}


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One signal: its value of each pod or over the tier, and how many times its target that is."""

    signal: Signal
    value: float | None  # None: no pod could tell
    target: float
    ratio: float | None


@dataclass(frozen=True, slots=True)
class TierRow:
    """One tier."""

    tier: Tier
    ready: int
    desired: int
    silent: int  # ready pods that did not answer
    signals: tuple[SignalRow, ...]
    wait: float | None  # mean seconds in its queue
    hits: Mapping[Cache, float]  # part of look-ups that a cache answered, of those that had any


@dataclass(frozen=True, slots=True)
class TopView:
    """All of one moment. Times to the first token are means in seconds."""

    title: str
    tiers: tuple[TierRow, ...]
    limiting: Tier | None
    first_token: float | None
    first_token_with_pictures: float | None


def view_of(
    title: str,
    policy: Policy,
    told: Mapping[Tier, Sequence[PodTold]],
    desired: Mapping[Tier, int],
    previous: Tier | None,
) -> TopView:
    """What to show.

    Args:
        told: what the pods of each tier told lately.
        desired: pods that each tier should have.
        previous: the tier that limited before.
    """
    gateways = told.get(Tier.GATEWAY, ())
    values = {
        one.tier: tier_signals(one.tier, told.get(one.tier, ()), gateways, 0.0).values
        for one in policy.tiers
    }
    pressures = {
        one.tier: max(found)
        for one in policy.tiers
        if (found := ratios(one.targets, values[one.tier], desired.get(one.tier, 0)))
    }
    ttft = Signal.TIME_TO_FIRST_TOKEN
    return TopView(
        title=title,
        tiers=tuple(_rows(policy, told, desired, values)),
        limiting=limiting_tier(pressures, previous),
        first_token=values.get(Tier.GATEWAY, {}).get(ttft),
        first_token_with_pictures=values.get(Tier.ENCODER, {}).get(ttft),
    )


def _rows(
    policy: Policy,
    told: Mapping[Tier, Sequence[PodTold]],
    desired: Mapping[Tier, int],
    values: Mapping[Tier, Mapping[Signal, float]],
) -> Iterator[TierRow]:
    for tier in policy.tiers:
        pods, measured = told.get(tier.tier, ()), values[tier.tier]
        among = max(desired.get(tier.tier, 0), 1)
        shares = [(one, among if one.shared else 1) for one in tier.targets]
        yield TierRow(
            tier=tier.tier,
            ready=sum(pod.ready for pod in pods),
            desired=desired.get(tier.tier, 0),
            silent=sum(pod.ready and pod.history is None for pod in pods),
            signals=tuple(
                SignalRow(
                    one.signal,
                    value=measured[one.signal] / pods_ if one.signal in measured else None,
                    target=one.target,
                    ratio=(
                        measured[one.signal] / pods_ / one.target
                        if one.signal in measured
                        else None
                    ),
                )
                for one, pods_ in shares
            ),
            wait=measured.get(Signal.QUEUE_WAIT),
            hits=_hit_rates(tier.tier, [pod.history for pod in pods if pod.history is not None]),
        )


def _hit_rates(tier: Tier, told: Sequence[History]) -> dict[Cache, float]:
    found = {}
    for cache in _CACHES.get(tier, ()):
        hits = sum(one.increase(Series(Metric.CACHE_HITS, cache)) for one in told)
        misses = sum(one.increase(Series(Metric.CACHE_MISSES, cache)) for one in told)
        if hits + misses:
            found[cache] = hits / (hits + misses)
    return found


def rendered(view: TopView) -> RenderableType:
    """The view as a table of 80 columns."""
    head = Text.assemble((view.title, "bold"), "   ", _verdict(view))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("TIER", "PODS", "SIGNAL"):
        table.add_column(name, no_wrap=True)
    for name in ("VALUE", "TARGET"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=_BAR)
    table.add_column("WAIT", justify="right", no_wrap=True)
    table.add_column("HITS", no_wrap=True)
    for row in view.tiers:
        for line in _lines(row, limits=row.tier is view.limiting):
            table.add_row(*line)
    return Group(head, "", table, "", Text(_first_tokens(view), style="dim"))


def _verdict(view: TopView) -> tuple[str, str]:
    """What holds the service up, and its style: load on a tier, or pods that are not there."""
    if view.limiting:
        return f"limited by {view.limiting}", "bold yellow"
    waiting = [row.tier for row in view.tiers if row.ready < row.desired]
    if waiting:
        return f"not ready: {', '.join(waiting)}; see triptych status", "bold red"
    return "nothing limits", "green"


def _lines(row: TierRow, *, limits: bool) -> Iterator[tuple[RenderableType, ...]]:
    pods = _pods(row)
    hits = [f"{_SHORT[cache]} {part:.0%}" for cache, part in row.hits.items()]
    for number in range(max(len(row.signals), len(hits), len(pods))):
        first = number == 0
        signal = row.signals[number] if number < len(row.signals) else None
        yield (
            Text(row.tier if first else "", style="bold yellow" if limits else "bold"),
            pods[number] if number < len(pods) else "",
            signal.signal if signal else "",
            _value(signal),
            _short(signal.target) if signal else "",
            _bar(signal.ratio) if signal and signal.ratio is not None else "",
            _seconds(row.wait) if first else "",
            hits[number] if number < len(hits) else "",
        )


def _pods(row: TierRow) -> list[Text]:
    style = "green" if row.ready >= row.desired else "red"
    counted = [Text(f"{row.ready}/{row.desired}", style=style)]
    return [*counted, Text(f"{row.silent} silent", style="red")] if row.silent else counted


def _value(signal: SignalRow | None) -> str:
    if signal is None:
        return ""
    return "?" if signal.value is None else _short(signal.value)


def _short(value: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= 10 * unit:
            return rounded(value / unit) + letter
    return f"{value:.0f}" if value >= 1000 else rounded(value)


def _bar(ratio: float) -> Text:
    """As long as the value, with a mark at the target."""
    filled = min(_BAR, round(ratio * _AT_TARGET))
    style = "red" if ratio > BEGINS else "green"
    text = Text("━" * filled, style=style)
    text.append("─" * (_BAR - filled), style="dim")
    return text


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _first_tokens(view: TopView) -> str:
    if not view.first_token:
        return "no first token in the last 30 s"
    text = f"first token after {_seconds(view.first_token)}"
    if view.first_token_with_pictures:
        text += f", with pictures after {_seconds(view.first_token_with_pictures)}"
    return text
