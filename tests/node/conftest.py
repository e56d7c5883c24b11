"""One node for the tests of each module; images of this checkout lie on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.fixtures import running_node
from node.one_node import OneNode


@pytest.fixture(scope="module")
def node() -> Iterator[OneNode]:
    with running_node() as running:
        yield running
