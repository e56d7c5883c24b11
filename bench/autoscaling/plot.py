"""The picture of one run: load, signals and pods over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from triptych_contract.names import Tier

from bench.autoscaling.load import Outcome
from bench.autoscaling.verdict import Stretch
from bench.autoscaling.watch import Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = {Tier.ENCODER: "#1f77b4", Tier.PREFILL: "#d97706", Tier.DECODE: "#2ca02c"}
_SLICE_SECONDS: Final = 5.0


def draw(
    path: Path,
    stretches: Sequence[Stretch],
    readings: Sequence[Reading],
    outcomes: Sequence[Outcome],
    signals: dict[Tier, str],
) -> None:
    """Writes a PNG; ``signals`` names what each tier scales on."""
    # Loading it takes a second, which no other part of the benchmark needs.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above, and after the choice of Agg

    figure, rows = plt.subplots(
        1 + len(signals), 1, figsize=(10, 8), sharex=True, layout="constrained"
    )
    _draw_requests(rows[0], outcomes)
    for axes, tier in zip(rows[1:], signals, strict=True):
        _draw_tier(axes, tier, signals[tier], readings, stretches[0].start)
    for axes in rows:
        _shade(axes, stretches)
    for stretch in stretches:
        if stretch.grows is not None:
            middle = (stretch.start + stretch.end) / 2 - stretches[0].start
            rows[0].annotate(
                stretch.name, (middle, 1.02), xycoords=("data", "axes fraction"), ha="center"
            )
    rows[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_requests(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    for phase in dict.fromkeys(one.phase for one in outcomes):
        slices = Counter(int(one.at / _SLICE_SECONDS) for one in outcomes if one.phase == phase)
        places = [index * _SLICE_SECONDS for index in sorted(slices)]
        rates = [slices[index] / _SLICE_SECONDS for index in sorted(slices)]
        axes.bar(places, rates, width=_SLICE_SECONDS, align="edge", color="#777777")
    axes.set_ylabel("requests/s")


def _draw_tier(
    axes: Axes, tier: Tier, signal: str, readings: Sequence[Reading], start: float
) -> None:
    colour = _COLOURS[tier]
    times = [one.at - start for one in readings]
    loads = [one.tiers[tier].load for one in readings]
    axes.plot(
        times,
        [float("nan") if load is None else load for load in loads],
        color="#999999",
        label=f"{signal}, in pods at its target",
    )
    axes.step(
        times, [one.tiers[tier].desired for one in readings], where="post",
        color=colour, linestyle=":", label="pods wanted",
    )  # fmt: skip
    axes.step(
        times, [one.tiers[tier].ready for one in readings], where="post",
        color=colour, linewidth=2, label="pods ready",
    )  # fmt: skip
    axes.set_ylabel(tier)
    axes.set_ylim(0, 5)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize="small", ncols=3, frameon=False)


def _shade(axes: Axes, stretches: Sequence[Stretch]) -> None:
    start = stretches[0].start
    for stretch in stretches:
        if stretch.grows is not None:
            axes.axvspan(
                stretch.start - start, stretch.end - start, color=_COLOURS[stretch.grows], alpha=0.1
            )
