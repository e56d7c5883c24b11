from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tiny model of a family, built once."""
    import tiny_models  # noqa: PLC0415 - loads torch, which tests without it must not

    @cache
    def folder(family: str) -> Path:
        return tiny_models.build(family, tmp_path_factory.mktemp("models") / family)

    return folder
