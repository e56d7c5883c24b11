"""The board of signals."""

from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import Signal
from triptych_operator.observed.store import ServiceKey
from triptych_operator.signals.board import SignalBoard, TierSignals

HERE = ServiceKey("default", "shapes")
THERE = ServiceKey("default", "other")


def encoders(at: float) -> TierSignals:
    return TierSignals(Tier.ENCODER, at, pods=2, answering=2, values={Signal.QUEUE_WAIT: 0.5})


def test_signals_are_told_until_they_are_too_old() -> None:
    board = SignalBoard(lasting=30)
    board.put(HERE, encoders(at=100))
    assert board.of(HERE, Tier.ENCODER, now=130) == encoders(at=100)
    assert board.of(HERE, Tier.ENCODER, now=130.1) is None
    assert board.of(HERE, Tier.PREFILL, now=100) is None
    assert board.of(THERE, Tier.ENCODER, now=100) is None


def test_what_is_not_kept_is_forgotten() -> None:
    board = SignalBoard(lasting=30)
    board.put(HERE, encoders(at=100))
    board.put(THERE, encoders(at=100))
    board.keep([HERE])
    assert board.of(HERE, Tier.ENCODER, now=100) is not None
    assert board.of(THERE, Tier.ENCODER, now=100) is None
