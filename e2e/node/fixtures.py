"""The node and its images as tests use them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from node.one_node import ROOT, OneNode

IMAGES_SECONDS = 1800.0  # the first build installs torch


@contextmanager
def running_node() -> Iterator[OneNode]:
    """A node that is up, with the images of this checkout. One that was up before stays up."""
    node = OneNode()
    was_up = node.state == "ready"
    node.up()
    try:
        _bring_images()
        yield node
    finally:
        if not was_up:
            node.down()


@cache  # the node keeps them from one up to the next
def _bring_images() -> None:
    with_this_python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "hack/cluster", "images"],
        check=False,
        capture_output=True,
        text=True,
        timeout=IMAGES_SECONDS,
        env={**os.environ, "PATH": with_this_python, "PROVIDER": "node"},
    )
    assert done.returncode == 0, done.stderr
