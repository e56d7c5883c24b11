from __future__ import annotations

import json
from pathlib import Path

import pytest
from triptych_contract.config import Processor
from triptych_contract.errors import InvalidModel
from triptych_contract.processor import effective_processor

AREAS = {"size": {"shortest_edge": 3136, "longest_edge": 12845056}, "patch_size": 14}


def write(folder: Path, name: str, value: object) -> None:
    (folder / name).write_text(json.dumps(value))


def test_without_overrides_it_is_what_the_folder_says(tmp_path: Path) -> None:
    write(tmp_path, "preprocessor_config.json", AREAS)
    assert effective_processor(tmp_path, Processor()) == AREAS


def test_a_nested_image_processor_wins_over_the_older_file(tmp_path: Path) -> None:
    write(tmp_path, "preprocessor_config.json", {"patch_size": 16})
    write(tmp_path, "processor_config.json", {"image_processor": AREAS, "processor_class": "P"})
    assert effective_processor(tmp_path, Processor()) == AREAS


def test_a_processor_file_without_image_processor_leaves_the_older_file_in_force(
    tmp_path: Path,
) -> None:
    write(tmp_path, "preprocessor_config.json", AREAS)
    write(tmp_path, "processor_config.json", {"processor_class": "P"})
    assert effective_processor(tmp_path, Processor()) == AREAS


def test_pixel_overrides_replace_the_areas_in_size(tmp_path: Path) -> None:
    write(tmp_path, "preprocessor_config.json", AREAS | {"min_pixels": 1})
    merged = effective_processor(tmp_path, Processor(min_pixels=100, max_pixels=200))
    assert merged == {"size": {"shortest_edge": 100, "longest_edge": 200}, "patch_size": 14}


def test_an_override_equal_to_the_folder_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, "preprocessor_config.json", AREAS)
    assert effective_processor(tmp_path, Processor(min_pixels=3136)) == AREAS


def test_where_size_is_an_edge_the_pixel_override_stands_by_itself(tmp_path: Path) -> None:
    write(tmp_path, "preprocessor_config.json", {"size": {"longest_edge": 1536}})
    merged = effective_processor(tmp_path, Processor(max_pixels=200))
    assert merged == {"size": {"longest_edge": 1536}, "max_pixels": 200}


def test_parameters_are_added_and_replaced_by_name(tmp_path: Path) -> None:
    write(tmp_path, "preprocessor_config.json", AREAS)
    merged = effective_processor(
        tmp_path, Processor(parameters={"patch_size": 16, "do_image_splitting": False})
    )
    assert merged == AREAS | {"patch_size": 16, "do_image_splitting": False}


@pytest.mark.parametrize("content", ["[]", "{", "nul\x00", '{"mean": NaN}'])
def test_a_damaged_file_is_an_invalid_model_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "preprocessor_config.json").write_text(content)
    with pytest.raises(InvalidModel, match=r"preprocessor_config\.json"):
        effective_processor(tmp_path, Processor())


def test_a_folder_without_any_says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"add preprocessor_config\.json"):
        effective_processor(tmp_path, Processor())
