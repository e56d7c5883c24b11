from __future__ import annotations

from pathlib import Path

import pytest
from triptych_contract.config import Source
from triptych_contract.errors import InvalidModel, Unavailable
from triptych_models.catalog import builtin_folder, encoder_folder
from triptych_models.sources import model_folder, vision_folder


def test_a_builtin_source_is_the_catalog_s_folder() -> None:
    assert model_folder(Source(source="builtin://shapes")) == builtin_folder("shapes", "1")


def test_an_encoder_revision_is_looked_up_among_the_encoders() -> None:
    moved = Source(source="builtin://shapes", revision="2")
    assert vision_folder(moved) == encoder_folder("shapes", "2")
    with pytest.raises(InvalidModel, match="no revision '2'"):
        model_folder(moved)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_folder_on_this_machine_is_itself(tmp_path: Path, form: str) -> None:
    assert model_folder(Source(source=form.format(tmp_path))) == tmp_path


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("builtin://squares", "no built-in model is named 'squares'"),
        ("file:///no/such/folder", "/no/such/folder is not a folder here"),
        ("/no/such/folder", "/no/such/folder is not a folder here"),
        ("file://relative/folder", "an absolute path"),
        ("s3://bucket/model", "use builtin://NAME"),
        ("shapes", "use builtin://NAME"),
        ("", "use builtin://NAME"),
        ("hf://a/b/c", "write hf://ORG/NAME"),
    ],
)
def test_a_source_that_names_nothing_says_what_to_write(source: str, says: str) -> None:
    with pytest.raises(InvalidModel, match=says):
        model_folder(Source(source=source))


def test_a_repository_that_is_not_here_and_cannot_be_fetched_says_how_to_bring_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(Unavailable, match="fill HF_HOME beforehand"):
        model_folder(Source(source="hf://triptych/nowhere", revision="main"))
