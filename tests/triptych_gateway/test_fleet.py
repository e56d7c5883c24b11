from dataclasses import replace

import pytest
from triptych_contract.config import Revisions
from triptych_contract.fingerprints import EncoderIdentity
from triptych_contract.names import Tier, Topology
from triptych_gateway.tiers.choice import by_content, least_busy
from triptych_gateway.tiers.fleet import Expected, Pod, Route, missing_tiers, plan_route

IDENTITY = EncoderIdentity("s", "1", "w1", "1", {"size": [1, 2]})
EXPECTED = Expected(replace(IDENTITY, weights="", engine_version=""))
OTHER_PROCESSOR = replace(IDENTITY, processor={"size": [3]})


def encoder(address: str, fingerprint: str = "f1", identity: EncoderIdentity = IDENTITY) -> Pod:
    return Pod(Tier.ENCODER, address, identity=identity, fingerprint=fingerprint)


def language(tier: Tier, address: str, digest: str = "d1", **fields: object) -> Pod:
    return Pod(tier, address, model_digest=digest, kv_layout="l", **fields)


def addresses(pods) -> list[str]:
    return [pod.address for pod in pods]


def full(*pods: Pod) -> Route:
    return plan_route(pods, Topology.FULL_SPLIT, EXPECTED)


def test_pods_that_agree_make_a_route():
    route = full(
        encoder("e"), language(Tier.PREFILL, "p", context_tokens=100),
        language(Tier.DECODE, "d", context_tokens=100, kv_tokens=80),
    )  # fmt: skip
    assert addresses(route.encoders) == ["e"]
    assert addresses(route.prefill) == ["p"]
    assert addresses(route.decode) == ["d"]
    assert (route.fingerprint, route.model_digest, route.context_tokens) == ("f1", "d1", 80)
    assert missing_tiers(route, Topology.FULL_SPLIT) == ()


def test_an_encoder_that_reads_other_pixels_is_not_asked():
    route = full(encoder("e", identity=OTHER_PROCESSOR))
    assert route.encoders == ()
    assert missing_tiers(route, Topology.FULL_SPLIT) == (Tier.ENCODER, Tier.PREFILL, Tier.DECODE)


@pytest.mark.parametrize("change", ["source", "revision", "processor_revision", "dtype"])
def test_each_part_of_the_identity_counts(change):
    assert not EXPECTED.accepts(replace(IDENTITY, **{change: "other"}))
    assert EXPECTED.accepts(replace(IDENTITY, weights="w2", engine_version="9"))


def test_in_a_rollout_the_commoner_encoder_is_used_alone():
    route = full(encoder("a", "f2"), encoder("b", "f1"), encoder("c", "f1"))
    assert addresses(route.encoders) == ["b", "c"]


def test_prefill_and_decode_of_two_revisions_are_never_mixed():
    route = full(
        language(Tier.PREFILL, "p1"), language(Tier.PREFILL, "p2", "d2"),
        language(Tier.PREFILL, "p3", "d2"), language(Tier.DECODE, "q1"),
    )  # fmt: skip
    assert addresses(route.prefill) == ["p1"]
    assert addresses(route.decode) == ["q1"]


def test_pods_whose_keys_and_values_lie_otherwise_do_not_pair():
    route = full(
        language(Tier.PREFILL, "p"),
        Pod(Tier.DECODE, "d", model_digest="d1", kv_layout="other"),
    )
    assert missing_tiers(route, Topology.FULL_SPLIT)[1:] != ()


def test_a_fused_pod_is_its_own_encoder_where_no_encoder_tier_exists():
    pod = language(Tier.FUSED, "x", identity=IDENTITY, fingerprint="f1", can_encode=True)
    route = plan_route([pod], Topology.FUSED, EXPECTED)
    assert route.encoders == route.fused == (pod,)


def test_a_fused_pod_beside_encoders_is_only_the_fallback():
    pod = language(Tier.FUSED, "x", identity=IDENTITY, fingerprint="f1", can_encode=True)
    route = plan_route([pod, encoder("e")], Topology.ENCODE_SPLIT, EXPECTED)
    assert addresses(route.encoders) == ["e"]
    assert route.inline == (pod,)
    alone = plan_route([pod], Topology.ENCODE_SPLIT, EXPECTED)
    assert alone.fingerprint == "f1"
    assert missing_tiers(alone, Topology.ENCODE_SPLIT) == (Tier.ENCODER,)


PODS = [encoder(f"e{index}") for index in range(4)]
KEYS = [bytes([index]) * 32 for index in range(200)]


def test_content_stays_with_its_pod_and_spreads():
    owners = {key: by_content(key, PODS, {}).address for key in KEYS}
    assert owners == {key: by_content(key, PODS[::-1], {}).address for key in KEYS}
    assert all(30 <= list(owners.values()).count(pod.address) <= 75 for pod in PODS)


def test_a_lost_pod_moves_only_its_own_content():
    before = {key: by_content(key, PODS, {}).address for key in KEYS}
    after = {key: by_content(key, PODS[1:], {}).address for key in KEYS}
    assert all(after[key] == owner for key, owner in before.items() if owner != "e0")
    excluded = {key: by_content(key, PODS, {}, {"e0"}).address for key in KEYS}
    assert excluded == after


def test_a_pod_with_more_than_its_share_passes_content_on():
    key = KEYS[0]
    owner = by_content(key, PODS, {}).address
    other = by_content(key, PODS, {owner: 8})
    assert other.address != owner
    even = {pod.address: 8 for pod in PODS}
    assert by_content(key, PODS, even).address == owner


def test_without_pods_there_is_no_choice():
    assert by_content(KEYS[0], [], {}) is None
    assert least_busy(b"k", PODS, {}, {pod.address for pod in PODS}) is None


def test_the_least_busy_pod_is_asked_by_what_we_sent_and_what_it_says():
    pods = [replace(PODS[0], busy=3), replace(PODS[1], busy=1), replace(PODS[2], busy=0)]
    assert least_busy(b"k", pods, {"e2": 2}).address == "e1"


def test_equal_pods_share_requests():
    chosen = {least_busy(key, PODS, {}).address for key in KEYS}
    assert chosen == {pod.address for pod in PODS}


OWN = replace(EXPECTED, revisions=Revisions(language="l1", encoder="e1"))


def of(pod: Pod, language: str = "", encoder: str = "") -> Pod:
    return replace(pod, revisions=Revisions(language=language, encoder=encoder))


def test_while_versions_change_a_gateway_uses_the_workers_of_its_own():
    own = [
        of(encoder("e1"), encoder="e1"),
        of(language(Tier.PREFILL, "p1"), "l1"),
        of(language(Tier.DECODE, "d1"), "l1"),
    ]
    # More pods, and alike in all that they load: still another version.
    others = [
        of(encoder(f"e2{n}"), encoder="e2") for n in range(3)
    ] + [
        of(language(tier, f"{tier}{n}"), "l2") for tier in (Tier.PREFILL, Tier.DECODE)
        for n in range(3)
    ]  # fmt: skip
    route = plan_route([*others, *own], Topology.FULL_SPLIT, OWN)
    assert (route.encoders, route.prefill, route.decode) == tuple((pod,) for pod in own)


def test_a_language_pod_of_another_encoder_does_not_stand_in():
    pod = language(Tier.PREFILL, "p", identity=IDENTITY, fingerprint="f1", can_encode=True)
    route = plan_route([of(pod, "l1", "e2")], Topology.FULL_SPLIT, OWN)
    assert addresses(route.prefill) == ["p"]
    assert route.inline == ()
    assert plan_route([of(pod, "l1", "e1")], Topology.FULL_SPLIT, OWN).inline != ()


def test_workers_without_revisions_belong_to_every_gateway():
    route = plan_route([encoder("e"), language(Tier.PREFILL, "p")], Topology.FULL_SPLIT, OWN)
    assert (addresses(route.encoders), addresses(route.prefill)) == (["e"], ["p"])
