import pytest
from mms_builders import service
from triptych_contract import config
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier, Topology
from triptych_operator.runtime import gateway_config, source_in_process, worker_config

MIB = 1024 * 1024


@pytest.mark.parametrize("tier", [Tier.ENCODER, Tier.PREFILL, Tier.DECODE])
def test_a_minimal_resource_runs_with_the_defaults_of_the_processes(tier: Tier) -> None:
    model = config.Model(source="builtin://shapes", revision="1")
    expected = config.WorkerConfig(model=model, can_encode=False)
    made = worker_config(service(), tier).model_copy(update={"revisions": expected.revisions})
    if tier is not Tier.ENCODER:
        # A prefill that stands in for encoders keeps embeddings within its own cache.
        made = made.model_copy(update={"encode": expected.encode})
    assert made == expected


def test_a_minimal_gateway_runs_with_its_defaults() -> None:
    model = config.Model(source="builtin://shapes", revision="1", served_name="shapes")
    made = gateway_config(service(), {})
    assert made == config.GatewayConfig(
        model=model, topology=Topology.FULL_SPLIT, revisions=made.revisions
    )


def test_what_the_encoder_tier_says_reaches_the_encoder() -> None:
    given = service(
        tiers__encoder={
            "cache": {"capacity": "8Mi"},
            "limits": {"batchVisualTokens": 64, "queueVisualTokens": 128, "inflight": "4Mi"},
            "drain": {"timeout": "1m30s"},
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }
    )
    made = worker_config(given, Tier.ENCODER, threads=3)
    assert made.encode == config.EncodeLimits(
        batch_visual_tokens=64,
        queue_visual_tokens=128,
        cache_bytes=8 * MIB,
        inflight_bytes=4 * MIB,
    )
    assert (made.drain_seconds, made.model.device, made.threads) == (90.0, "cuda", 3)


def test_each_language_tier_has_its_own_limits() -> None:
    given = service(
        tiers__prefill={
            "limits": {"kvTokens": 100, "chunkTokens": 7},
            "cache": {"capacity": 5},
            "prefixCache": {"capacity": "6Ki"},
        },
        tiers__decode={"limits": {"kvTokens": 200, "maxRunning": 9, "outbox": "1Ki"}},
    )
    prefill = worker_config(given, Tier.PREFILL).language
    decode = worker_config(given, Tier.DECODE).language
    assert (prefill.kv_tokens, prefill.chunk_tokens, prefill.embedding_cache_bytes) == (100, 7, 5)
    assert prefill.prefix_cache_bytes == 6144
    assert (decode.kv_tokens, decode.max_running, decode.outbox_bytes) == (200, 9, 1024)


@pytest.mark.parametrize("tier", [Tier.ENCODER, Tier.DECODE])
def test_what_prefill_keeps_is_nothing_to_other_tiers(tier: Tier) -> None:
    given = service(
        tiers__prefill={"cache": {"capacity": 5}, "prefixCache": {"capacity": 6}},
    )
    assert worker_config(given, tier) == worker_config(service(), tier)


def test_what_moves_tensors_reaches_every_worker() -> None:
    given = service(
        transfer={"transport": "nixl", "lease": "3s", "timeout": "2s", "landing": "1Mi"}
    )
    assert worker_config(given, Tier.DECODE).transfer == config.Transfer(
        transport="nixl", lease_seconds=3.0, timeout_seconds=2.0, landing_bytes=MIB
    )


def test_model_encoder_and_processor_reach_whoever_uses_them() -> None:
    given = service(
        model__dtype="bfloat16",
        model__encoder={"source": "pvc://models/enc/v2", "revision": "2"},
        model__processor={"revision": "p", "minPixels": 1, "parameters": {"do_resize": False}},
    )
    expected = config.Model(
        source="builtin://shapes",
        revision="1",
        served_name="shapes",
        dtype="bfloat16",
        encoder=config.Source(source="file:///var/lib/triptych/models/models/enc/v2", revision="2"),
        processor=config.Processor(revision="p", min_pixels=1, parameters={"do_resize": False}),
    )
    assert gateway_config(given, {}).model == expected
    worker = expected.model_copy(update={"served_name": "model"})
    assert worker_config(given, Tier.ENCODER).model == worker
    without = worker.model_copy(update={"encoder": None, "processor": config.Processor()})
    assert worker_config(given, Tier.DECODE).model == without


@pytest.mark.parametrize(
    ("topology", "tier", "on_loss", "can_encode"),
    [
        ("Fused", Tier.FUSED, "RejectMultimodal", True),
        ("EncodeSplit", Tier.FUSED, "EncodeInline", True),
        ("EncodeSplit", Tier.FUSED, "RejectMultimodal", True),
        ("FullSplit", Tier.PREFILL, "EncodeInline", True),
        ("FullSplit", Tier.PREFILL, "Queue", False),
        ("FullSplit", Tier.DECODE, "EncodeInline", False),
    ],
)
def test_who_may_stand_in_for_encoders_loads_the_vision_part(
    topology: str, tier: Tier, on_loss: str, can_encode: bool
) -> None:
    given = service(topology=topology, degraded={"onEncoderLoss": on_loss})
    assert worker_config(given, tier).can_encode is can_encode


def test_media_and_degraded_reach_the_gateway() -> None:
    given = service(
        media={
            "budgets": {"default": {"maxItems": 2, "maxBytes": "1Mi", "maxPixels": 3}},
            "urlPolicy": {"allowNetworks": ["10.0.0.0/8"], "fetchTimeout": "2s"},
            "decode": {"processes": 4, "timeout": "500ms", "inflight": "9Mi"},
            "tenants": {"header": "X-Tenant"},
            "uuids": {"capacity": "3Mi"},
        },
        degraded={"onEncoderLoss": "Queue", "queueTimeout": "7s"},
        tiers__gateway={
            "limits": {"maxBody": "2Mi", "maxConcurrent": 5, "requestTimeout": "1m"},
            "cache": {"capacity": 0},
        },
    )
    addresses = config.Endpoints(addresses=("127.0.0.1:1",))
    made = gateway_config(given, {Tier.PREFILL: addresses})
    assert made.media == config.MediaLimits(
        max_items=2,
        max_bytes=MIB,
        max_pixels=3,
        inflight_bytes=9 * MIB,
        fetch_seconds=2.0,
        decode_seconds=0.5,
        decode_processes=4,
        allow_networks=("10.0.0.0/8",),
        tenant_header="X-Tenant",
        uuid_bytes=3 * MIB,
    )
    assert (made.prefill, made.decode) == (addresses, config.Endpoints())
    assert (made.on_encoder_loss, made.queue_seconds) == ("Queue", 7.0)
    assert not made.encoder_rests
    assert (made.max_body_bytes, made.max_concurrent, made.request_seconds) == (2 * MIB, 5, 60.0)
    assert made.processor_cache_bytes == 0


def test_gateways_know_that_encoders_may_rest() -> None:
    resting = {"max": 2, "scaleToZeroAfter": "10m"}
    spec = service(tiers__encoder__autoscaling=resting, degraded__onEncoderLoss="Queue")
    assert gateway_config(spec, {}).encoder_rests


@pytest.mark.parametrize("tier", [Tier.GATEWAY, Tier.FUSED])
def test_a_tier_that_runs_no_worker_here_has_no_configuration(tier: Tier) -> None:
    with pytest.raises(InvalidRequest, match="topology FullSplit runs no"):
        worker_config(service(), tier)


def test_only_a_claim_is_a_folder_in_the_process() -> None:
    assert source_in_process("pvc://c/a/b") == "file:///var/lib/triptych/models/c/a/b"
    assert source_in_process("hf://a/b") == "hf://a/b"


ENCODER_CHANGES = [
    {"model__encoder": {"source": "builtin://shapes", "revision": "2"}},
    {"model__processor": {"maxPixels": 12544}},
    {"model__processor": {"revision": "p"}},
]
LANGUAGE_CHANGES = [
    {"model__revision": "2"},
    {"model__source": "hf://a/b"},
    {"model__dtype": "bfloat16"},
]


@pytest.mark.parametrize("change", ENCODER_CHANGES)
def test_a_change_of_the_encoder_leaves_tiers_without_one_alone(change: dict[str, object]) -> None:
    for tier in (Tier.PREFILL, Tier.DECODE):
        assert worker_config(service(**change), tier) == worker_config(service(), tier)
    for made in (
        worker_config(service(**change), Tier.ENCODER).revisions,
        gateway_config(service(**change), {}).revisions,
    ):
        assert made.encoder != gateway_config(service(), {}).revisions.encoder


@pytest.mark.parametrize("change", LANGUAGE_CHANGES)
def test_a_change_of_the_language_model_is_another_revision_of_everything(
    change: dict[str, object],
) -> None:
    old, new = (gateway_config(one, {}).revisions for one in (service(), service(**change)))
    assert old.language != new.language
    assert old.encoder != new.encoder


def test_the_image_is_part_of_every_revision() -> None:
    for tier in (Tier.ENCODER, Tier.PREFILL, Tier.DECODE):
        one, two = (worker_config(service(), tier, image=name).revisions for name in ("a", "b"))
        assert one != two


def test_gateway_and_workers_of_one_resource_agree() -> None:
    gateway = gateway_config(service(), {}, image="a").revisions
    decode = worker_config(service(), Tier.DECODE, image="a").revisions
    encoder = worker_config(service(), Tier.ENCODER, image="a").revisions
    assert decode == config.Revisions(language=gateway.language)
    assert encoder == config.Revisions(encoder=gateway.encoder)


def test_limits_and_names_are_no_part_of_a_revision() -> None:
    other = service(tiers__decode__limits={"kvTokens": 7}, model__servedName="else")
    assert gateway_config(other, {}).revisions == gateway_config(service(), {}).revisions
    assert worker_config(other, Tier.PREFILL) == worker_config(service(), Tier.PREFILL)
