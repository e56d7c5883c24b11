"""Fingerprints change with every ingredient and with nothing else; keys never collide by layout."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_contract.fingerprints import (
    EncoderIdentity,
    LanguageIdentity,
    canonical_json,
    embedding_key,
    encoder_fingerprint,
    language_digest,
    media_digest,
    prefix_key,
    stated_fingerprint,
    tenant_salt,
)

IDENTITY = EncoderIdentity(
    source="hf://org/model",
    revision="1",
    weights="ab" * 32,
    processor_revision="1",
    processor={"max_pixels": 12544, "mean": [0.5, 0.5, 0.5], "do_resize": True},
    media={"exif_transpose": True},
    dtype="float32",
    engine="triptych",
    engine_version="0.1.0",
)

CHANGES = {
    "source": "hf://org/other",
    "revision": "2",
    "weights": "cd" * 32,
    "processor_revision": "2",
    "processor": {"max_pixels": 28224, "mean": [0.5, 0.5, 0.5], "do_resize": True},
    "media": {"exif_transpose": False},
    "dtype": "bfloat16",
    "engine": "vllm",
    "engine_version": "0.1.1",
}


def test_the_table_of_changes_names_every_ingredient() -> None:
    assert set(CHANGES) == {field.name for field in fields(EncoderIdentity)}


@pytest.mark.parametrize("ingredient", CHANGES)
def test_each_ingredient_changes_the_fingerprint(ingredient: str) -> None:
    changed = replace(IDENTITY, **{ingredient: CHANGES[ingredient]})
    assert encoder_fingerprint(changed) != encoder_fingerprint(IDENTITY)


def test_the_fingerprint_follows_from_the_canonical_form_whatever_parts_that_has() -> None:
    assert stated_fingerprint(IDENTITY.canonical()) == encoder_fingerprint(IDENTITY)
    later = json.loads(IDENTITY.canonical()) | {"attention": "sparse"}
    found = stated_fingerprint(canonical_json(later))
    assert len(found) == 64
    assert found != encoder_fingerprint(IDENTITY)


def test_the_order_of_processor_parameters_does_not_change_the_fingerprint() -> None:
    turned = replace(IDENTITY, processor=dict(reversed(list(IDENTITY.processor.items()))))
    assert encoder_fingerprint(turned) == encoder_fingerprint(IDENTITY)


def test_a_value_of_another_type_changes_the_fingerprint() -> None:
    assert encoder_fingerprint(replace(IDENTITY, processor={"a": 1})) != encoder_fingerprint(
        replace(IDENTITY, processor={"a": "1"})
    )


def test_an_identity_survives_its_canonical_form() -> None:
    assert EncoderIdentity.parse(IDENTITY.canonical()) == IDENTITY


def test_a_foreign_text_is_no_identity() -> None:
    with pytest.raises(ValueError, match="not an encoder identity"):
        EncoderIdentity.parse('{"colour": "red"}')


def test_nan_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"scale": float("nan")})


def test_language_digest_depends_on_the_kv_layout() -> None:
    identity = LanguageIdentity("s", "1", "w", "float32", "layers=4 heads=1 dim=64 float32")
    other = replace(identity, kv_layout="layers=4 heads=2 dim=32 float32")
    assert language_digest(identity) != language_digest(other)


def test_tenants_have_keys_of_their_own() -> None:
    media, fingerprint = media_digest(b"picture"), encoder_fingerprint(IDENTITY)
    first = embedding_key(media, fingerprint, tenant_salt("a"))
    assert first != embedding_key(media, fingerprint, tenant_salt("b"))
    assert first == embedding_key(media, fingerprint, tenant_salt("a"))
    assert len(first) == 32


@pytest.mark.parametrize("short", [0, 1, 2])
def test_a_truncated_digest_is_refused(short: int) -> None:
    media, fingerprint, salt = media_digest(b"x"), encoder_fingerprint(IDENTITY), tenant_salt("")
    arguments = [media, fingerprint, salt]
    arguments[short] = arguments[short][:16]  # type: ignore[index]
    with pytest.raises(ValueError, match="whole digests"):
        embedding_key(*arguments)  # type: ignore[arg-type]


PARTS = st.tuples(
    st.sampled_from([tenant_salt("a"), tenant_salt("b")]),
    st.sampled_from([b"", b"k" * 32]),
    st.binary(max_size=3),
    st.lists(st.binary(max_size=3), max_size=3).map(tuple),
)


@given(PARTS, PARTS)
def test_prefixes_of_different_parts_have_different_keys(
    left: tuple[bytes, bytes, bytes, tuple[bytes, ...]],
    right: tuple[bytes, bytes, bytes, tuple[bytes, ...]],
) -> None:
    assert (prefix_key(*left) == prefix_key(*right)) == (left == right)


@pytest.mark.parametrize(("salt", "before"), [(b"s" * 31, b""), (b"", b""), (b"s" * 32, b"k")])
def test_a_prefix_without_whole_digests_is_refused(salt: bytes, before: bytes) -> None:
    with pytest.raises(ValueError, match="whole digests"):
        prefix_key(salt, before, b"tokens", ())


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_different_media_have_different_keys(left: bytes, right: bytes) -> None:
    fingerprint, salt = encoder_fingerprint(IDENTITY), tenant_salt("")
    keys = {embedding_key(media_digest(media), fingerprint, salt) for media in (left, right)}
    assert len(keys) == len({left, right})
