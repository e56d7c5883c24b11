"""One node for all tests; images of this checkout lie on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.fixtures import running_node
from node.one_node import OneNode


@pytest.fixture(scope="session")
def kept_up() -> Iterator[OneNode]:
    with running_node() as running:
        yield running


@pytest.fixture(scope="module")
def node(kept_up: OneNode) -> OneNode:
    kept_up.up()  # nothing, unless a test took it down
    return kept_up
