from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from references import Case


@pytest.fixture(scope="session")
def folder(tiny_folder: Callable[[str], Path]) -> Path:
    """The tiny model that tests of one family use."""
    import torch  # noqa: PLC0415 - tests without it must not load it

    torch.set_num_threads(1)
    return tiny_folder("qwen2_5_vl")


@pytest.fixture(scope="session")
def picture_case(folder: Path) -> Case:
    """A prompt with pictures, and its answer."""
    from references import Reference, message_cases  # noqa: PLC0415 - loads torch

    return Reference(folder).case(message_cases()["two equal images"], max_tokens=12)
