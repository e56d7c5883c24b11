"""From a resource to the fingerprint: encoder and gateway arrive at the same one.

What changes it is what changes an embedding, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mms_builders import service
from triptych_contract.config import Model, Revisions
from triptych_contract.fingerprints import EncoderIdentity, encoder_fingerprint
from triptych_contract.names import Tier
from triptych_contract.processor import effective_processor
from triptych_gateway.identity import expected_workers
from triptych_models.sources import model_folder
from triptych_operator.runtime import gateway_config, worker_config
from triptych_worker.serving.identity import encoder_identity

WEIGHTS = "ab" * 32
SHAPES = {"source": "builtin://shapes", "revision": "2"}

TOUCHES = {
    "encoder": {"model__encoder": SHAPES},
    "encoder's source": {"model__encoder": {"source": "hf://org/encoder", "revision": "1"}},
    "number type": {"model__dtype": "bfloat16"},
    "processor's revision": {"model__processor": {"revision": "2"}},
    "least pixels": {"model__processor": {"minPixels": 3136}},
    "most pixels": {"model__processor": {"maxPixels": 25600}},
    "processor parameter": {"model__processor": {"parameters": {"resample": 2}}},
    "another type of the same": {"model__processor": {"parameters": {"resample": "3"}}},
}
LEAVES_ALONE = {
    "name": {"model__servedName": "other"},
    "encoders": {"tiers__encoder": {"replicas": 3}},
    "encoder's cache": {"tiers__encoder": {"cache": {"capacity": "8Mi"}}},
    "encoder's batches": {"tiers__encoder": {"limits": {"batchVisualTokens": 64}}},
    "prefill": {"tiers__prefill": {"replicas": 2, "limits": {"kvTokens": 100}}},
    "gateway's cache": {"tiers__gateway": {"cache": {"capacity": 0}}},
    "budgets": {"media__budgets": {"default": {"maxPixels": 1000}}},
    "tenants": {"media__tenants": {"header": "x-tenant"}},
    "named pictures": {"media__uuids": {"capacity": 0}},
    "transport": {"transfer__transport": "nixl"},
    "encoder loss": {"degraded__onEncoderLoss": "EncodeInline"},
    "the default, written down": {"model__processor": {"parameters": {"resample": 3}}},
}


def encoder(**changes: object) -> EncoderIdentity:
    """What the encoder of a resource says it is, had it loaded ``WEIGHTS``."""
    model = worker_config(service(**changes), Tier.ENCODER).model
    return encoder_identity(model, _folder(model), WEIGHTS)


def gateway(**changes: object) -> EncoderIdentity:
    """What the gateway of a resource expects; it cannot know weights and engine version."""
    model = gateway_config(service(**changes), {}).model
    parameters = effective_processor(_folder(model), model.processor)
    return expected_workers(model, parameters, Revisions()).identity


@pytest.mark.parametrize("change", TOUCHES)
def test_what_changes_an_embedding_changes_the_fingerprint(change: str) -> None:
    before = encoder_fingerprint(encoder())
    assert encoder_fingerprint(encoder(**TOUCHES[change])) != before


def test_no_two_changes_come_to_the_same() -> None:
    found = {encoder_fingerprint(encoder(**change)) for change in TOUCHES.values()}
    assert len(found) == len(TOUCHES)


@pytest.mark.parametrize("change", LEAVES_ALONE)
def test_nothing_else_does(change: str) -> None:
    assert encoder_fingerprint(encoder(**LEAVES_ALONE[change])) == encoder_fingerprint(encoder())


@pytest.mark.parametrize("change", [*TOUCHES, *LEAVES_ALONE])
def test_the_gateway_expects_the_encoder_that_there_is(change: str) -> None:
    values = (TOUCHES | LEAVES_ALONE)[change]
    there = encoder(**values)
    expected = replace(
        gateway(**values), weights=there.weights, engine_version=there.engine_version
    )
    assert encoder_fingerprint(expected) == encoder_fingerprint(there)


def test_other_weights_of_the_same_name_are_another_encoder() -> None:
    identity = encoder()
    assert encoder_fingerprint(replace(identity, weights="cd" * 32)) != encoder_fingerprint(
        identity
    )


def test_another_engine_version_is_another_encoder() -> None:
    identity = encoder()
    newer = replace(identity, engine_version=f"{identity.engine_version}.1")
    assert encoder_fingerprint(newer) != encoder_fingerprint(identity)


def _folder(model: Model) -> Path:
    return model_folder(Model(source="builtin://shapes", revision=model.revision))
