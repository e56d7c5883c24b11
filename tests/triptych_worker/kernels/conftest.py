from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def torch_threads() -> Iterator[None]:
    """Gives the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
