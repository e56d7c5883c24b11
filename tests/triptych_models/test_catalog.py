"""The catalog: folders that exist are found, anything else is refused by name."""

import subprocess
import sys

import pytest
from triptych_models import (
    UnknownBuiltinError,
    builtin_folder,
    builtin_names,
    builtin_revisions,
    encoder_folder,
    encoder_revisions,
)

MODEL_FILES = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


def test_shapes_has_one_model_and_two_encoders() -> None:
    assert builtin_names() == ("shapes",)
    assert builtin_revisions("shapes") == ("1",)
    assert encoder_revisions("shapes") == ("1", "2")


def test_every_folder_of_the_catalog_is_complete() -> None:
    for name in builtin_names():
        folders = [builtin_folder(name, revision) for revision in builtin_revisions(name)]
        folders += [encoder_folder(name, revision) for revision in encoder_revisions(name)]
        for folder in folders:
            assert {file.name for file in folder.iterdir()} >= MODEL_FILES


def test_encoder_1_is_that_of_the_whole_model() -> None:
    assert encoder_folder("shapes", "1") == builtin_folder("shapes", "1")


def test_all_weights_together_are_small_enough_to_commit() -> None:
    folders = {builtin_folder("shapes", "1"), encoder_folder("shapes", "2")}
    assert sum((folder / "model.safetensors").stat().st_size for folder in folders) <= 8_000_000


def test_an_unknown_model_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(UnknownBuiltinError, match=r"no built-in model is named 'forms'.*shapes"):
        builtin_folder("forms", "1")


def test_an_unknown_revision_is_refused_with_the_revisions_that_exist() -> None:
    with pytest.raises(LookupError, match=r"'shapes' has no revision '7'; there is: 1"):
        builtin_folder("shapes", "7")
    with pytest.raises(LookupError, match=r"no encoder revision '3'; there is: 1, 2"):
        encoder_folder("shapes", "3")


def test_importing_the_package_loads_neither_torch_nor_pillow() -> None:
    code = (
        "import sys, triptych_models, triptych_models.scenes, triptych_models.shapes;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'PIL', 'transformers')))"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )
