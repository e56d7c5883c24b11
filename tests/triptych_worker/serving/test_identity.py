from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from triptych_contract.config import Model, Processor, Source
from triptych_contract.fingerprints import encoder_fingerprint, language_digest
from triptych_worker.serving.identity import encoder_identity, language_identity

WEIGHTS = "ab" * 32
MODEL = Model(source="file:///m", revision="7")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    size = {"shortest_edge": 784, "longest_edge": 50176}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": size}))
    return tmp_path


def test_an_identity_names_all_that_makes_an_embedding(folder: Path) -> None:
    identity = encoder_identity(MODEL, folder, WEIGHTS)
    assert (identity.source, identity.revision, identity.weights) == ("file:///m", "7", WEIGHTS)
    assert identity.processor_revision == "7"
    assert identity.processor == {"size": {"shortest_edge": 784, "longest_edge": 50176}}
    assert (identity.dtype, identity.engine) == ("float32", "triptych")
    assert identity.engine_version
    assert identity.media


def test_an_encoder_of_its_own_replaces_source_and_revision_only(folder: Path) -> None:
    moved = MODEL.model_copy(update={"encoder": Source(source="file:///e", revision="2")})
    identity = encoder_identity(moved, folder, WEIGHTS)
    plain = encoder_identity(MODEL, folder, WEIGHTS)
    assert identity == replace(plain, source="file:///e", revision="2")


@pytest.mark.parametrize(
    "change",
    [
        {"revision": "8"},
        {"source": "file:///other"},
        {"dtype": "bfloat16"},
        {"encoder": Source(source="file:///e")},
        {"processor": Processor(revision="2")},
        {"processor": Processor(max_pixels=1000)},
        {"processor": Processor(parameters={"do_resize": False})},
    ],
)
def test_whatever_changes_an_embedding_changes_the_fingerprint(
    folder: Path, change: dict[str, object]
) -> None:
    before = encoder_fingerprint(encoder_identity(MODEL, folder, WEIGHTS))
    changed = encoder_identity(MODEL.model_copy(update=change), folder, WEIGHTS)
    assert encoder_fingerprint(changed) != before


def test_names_that_clients_see_and_where_it_runs_change_nothing(folder: Path) -> None:
    other = MODEL.model_copy(update={"served_name": "x", "device": "cuda"})
    assert encoder_identity(other, folder, WEIGHTS) == encoder_identity(MODEL, folder, WEIGHTS)


@pytest.mark.parametrize(
    ("model", "weights", "layout"),
    [
        (MODEL.model_copy(update={"revision": "8"}), WEIGHTS, "layers=2"),
        (MODEL.model_copy(update={"dtype": "float16"}), WEIGHTS, "layers=2"),
        (MODEL, "cd" * 32, "layers=2"),
        (MODEL, WEIGHTS, "layers=3"),
    ],
)
def test_whatever_changes_keys_and_values_changes_the_language_digest(
    model: Model, weights: str, layout: str
) -> None:
    before = language_digest(language_identity(MODEL, WEIGHTS, "layers=2"))
    assert language_digest(language_identity(model, weights, layout)) != before


def test_a_moved_encoder_leaves_the_language_digest_alone() -> None:
    moved = MODEL.model_copy(update={"encoder": Source(source="file:///e", revision="2")})
    assert language_identity(moved, WEIGHTS, "l") == language_identity(MODEL, WEIGHTS, "l")
