"""Every name that two parts must spell alike: ports, variables, headers, caches, metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

ENGINE: Final = "triptych"


class Tier(StrEnum):
    """A pool of like pods. ``FUSED`` runs all stages, or prefill and decode beside encoders."""

    ENCODER = "encoder"
    PREFILL = "prefill"
    DECODE = "decode"
    FUSED = "fused"
    GATEWAY = "gateway"


class Topology(StrEnum):
    """Which tiers serve a model: all in one, E + PD, or E + P + D."""

    FUSED = "Fused"
    ENCODE_SPLIT = "EncodeSplit"
    FULL_SPLIT = "FullSplit"

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers in dependency order, the gateway last."""
        return TOPOLOGY_TIERS[self]


TOPOLOGY_TIERS: Final[dict[Topology, tuple[Tier, ...]]] = {
    Topology.FUSED: (Tier.FUSED, Tier.GATEWAY),
    Topology.ENCODE_SPLIT: (Tier.ENCODER, Tier.FUSED, Tier.GATEWAY),
    Topology.FULL_SPLIT: (Tier.ENCODER, Tier.PREFILL, Tier.DECODE, Tier.GATEWAY),
}


class Port:
    """Default ports, the same in every pod. Values are TCP port numbers."""

    HTTP: Final = 8000  # gateway: OpenAI API, /healthz, /readyz
    GRPC: Final = 50051  # stages, transfer, cache administration, health, reflection
    METRICS: Final = 9090  # Prometheus text at /metrics


class Env:
    """Environment variables that our processes read."""

    CONFIG: Final = "TRIPTYCH_CONFIG"  # path of the runtime configuration (JSON)
    POD_IP: Final = "POD_IP"  # address that peers can reach this process at


# Bulk fetch: raw byte messages on this method, see v1/transfer.proto.
TRANSFER_SERVICE: Final = "triptych.v1.TransferStream"
TRANSFER_FETCH: Final = f"/{TRANSFER_SERVICE}/Fetch"

# Trailing metadata that carries a serialised ErrorDetail.
ERROR_METADATA: Final = "triptych-error-bin"

REQUEST_ID_HEADER: Final = "x-request-id"
# Which encoder made the embeddings behind an answer.
FINGERPRINT_HEADER: Final = "x-triptych-encoder-fingerprint"


class Stage(StrEnum):
    """The parts of a request's time. Each has one histogram, and a row in ``StageTimes``."""

    MEDIA_FETCH = "media_fetch"
    MEDIA_DECODE = "media_decode"
    PROCESSOR = "processor"
    ENCODE_QUEUE = "encode_queue"
    ENCODE = "encode"
    EMBEDDING_TRANSFER = "embedding_transfer"
    PREFILL_QUEUE = "prefill_queue"
    PREFILL = "prefill"
    KV_TRANSFER = "kv_transfer"
    DECODE_QUEUE = "decode_queue"
    DECODE = "decode"


class Count(StrEnum):
    """Counts that travel in ``StageTimes.counts``."""

    PROMPT_TOKENS = "prompt_tokens"
    VISUAL_TOKENS = "visual_tokens"
    OUTPUT_TOKENS = "output_tokens"
    PROCESSOR_CACHE_HITS = "processor_cache_hits"
    ENCODER_CACHE_HITS = "encoder_cache_hits"
    EMBEDDING_CACHE_HITS = "embedding_cache_hits"
    KV_PREFIX_TOKENS = "kv_prefix_tokens"


class Cache(StrEnum):
    """The caches that hold something which an encoder version makes stale."""

    PROCESSOR = "processor"  # gateway: pixels by media digest
    ENCODER = "encoder"  # encoder: embeddings that it made
    EMBEDDING = "embedding"  # prefill or fused: embeddings that it fetched
    KV_PREFIX = "kv_prefix"  # prefill or fused: keys and values of prompt prefixes


class Metric:
    """Prometheus metric names, base units. Histograms are by ``stage``, caches by ``cache``."""

    STAGE_SECONDS: Final = "triptych_stage_duration_seconds"
    TTFT_SECONDS: Final = "triptych_time_to_first_token_seconds"  # label modality: text, multimodal
    TPOT_SECONDS: Final = "triptych_time_per_output_token_seconds"
    GATEWAY_OVERHEAD_SECONDS: Final = "triptych_gateway_overhead_seconds"  # to the first token
    BUSY_SECONDS: Final = "triptych_busy_seconds_total"  # label stage: encode, prefill, decode
    REQUESTS: Final = "triptych_requests_total"  # label outcome: ok, cancelled, or an error reason
    IMAGES: Final = "triptych_images_encoded_total"
    VISUAL_TOKENS: Final = "triptych_visual_tokens_total"
    INPUT_TOKENS: Final = "triptych_input_tokens_total"
    OUTPUT_TOKENS: Final = "triptych_output_tokens_total"
    RUNNING: Final = "triptych_running_requests"
    WAITING: Final = "triptych_waiting_requests"
    WITHOUT_ENCODER: Final = "triptych_requests_without_encoder"
    BACKLOG_TOKENS: Final = "triptych_backlog_tokens"
    KV_TOKENS_USED: Final = "triptych_kv_tokens_used"
    KV_TOKENS_CAPACITY: Final = "triptych_kv_tokens_capacity"
    LEASES: Final = "triptych_leases"
    CACHE_HITS: Final = "triptych_cache_hits_total"
    CACHE_MISSES: Final = "triptych_cache_misses_total"
    CACHE_EVICTIONS: Final = "triptych_cache_evictions_total"
    CACHE_BYTES: Final = "triptych_cache_bytes"
    CACHE_CAPACITY_BYTES: Final = "triptych_cache_capacity_bytes"
    # labels cache, fingerprint: which encoder's things are held
    CACHE_FINGERPRINT_BYTES: Final = "triptych_cache_fingerprint_bytes"
    CACHE_SECONDS_SAVED: Final = "triptych_cache_seconds_saved_total"
    TRANSFER_BYTES: Final = "triptych_transfer_bytes_total"  # labels kind, transport, direction


# Bucket bounds, in seconds, of every histogram of stages: 1 ms to 2 minutes.
SECONDS_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)  # fmt: skip
# Bucket bounds, in seconds, of the time to the first token: closer where targets lie, 50 ms to 5 s.
TTFT_BUCKETS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5,
    10.0, 15.0, 30.0, 60.0, 120.0,
)  # fmt: skip
# Bucket bounds, in seconds, of the time per output token: 1 ms to 5 s.
TPOT_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 5.0,
)  # fmt: skip
