from __future__ import annotations

from pathlib import Path

from triptych_contract.names import Tier

from bench.autoscaling import live, plot
from bench.autoscaling.load import Outcome
from bench.autoscaling.verdict import Stretch
from bench.autoscaling.watch import Reading, TierReading


def test_a_run_is_drawn_also_where_a_signal_was_not_there(tmp_path: Path) -> None:
    stretches = [Stretch("quiet", 100.0, 110.0, None), Stretch("load", 110.0, 120.0, Tier.DECODE)]
    readings = [
        Reading(100.0 + at, dict.fromkeys(live.TIERS, TierReading(1, 1, 1.5 if at else None)))
        for at in range(0, 20, 2)
    ]
    outcomes = [Outcome("load", 10.5, 0.1, 0.2), Outcome("load", 16.0, 0.1, 0.2)]
    path = tmp_path / "run.png"
    plot.draw(path, stretches, readings, outcomes, dict.fromkeys(live.TIERS, "CPU"))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 200_000
