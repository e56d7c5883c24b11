"""Which series of the pods' pages each signal is made of, whoever reads the pages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triptych_contract.names import Metric, Stage, Tier

from triptych_operator.api.autoscaling import Signal

RATES: Final[Mapping[Signal, str]] = {
    Signal.IMAGES_PER_SECOND: Metric.IMAGES,
    Signal.VISUAL_TOKENS_PER_SECOND: Metric.VISUAL_TOKENS,
    Signal.INPUT_TOKENS_PER_SECOND: Metric.INPUT_TOKENS,
}
GAUGES: Final[Mapping[Signal, str]] = {
    Signal.BACKLOG_TOKENS: Metric.BACKLOG_TOKENS,
    Signal.RUNNING_REQUESTS: Metric.RUNNING,
}
# Where the requests of a tier wait for their turn.
QUEUES: Final[Mapping[Tier, tuple[Stage, ...]]] = {
    Tier.ENCODER: (Stage.ENCODE_QUEUE,),
    Tier.PREFILL: (Stage.PREFILL_QUEUE,),
    Tier.FUSED: (Stage.ENCODE_QUEUE, Stage.PREFILL_QUEUE),
}
# What of a tier's computing comes from requests, and grows with them. Decode is not among it: it
# computes all the time with one answer as with fifty.
BUSY: Final[Mapping[Tier, tuple[Stage, ...]]] = {
    Tier.ENCODER: (Stage.ENCODE,),
    Tier.PREFILL: (Stage.PREFILL,),
    Tier.FUSED: (Stage.ENCODE, Stage.PREFILL),
}
