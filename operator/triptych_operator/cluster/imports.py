"""The client of Kubernetes in little memory."""

from __future__ import annotations

import importlib.util
import sys

_CLIENT = "kubernetes"


def spare_synchronous_client() -> None:
    """Keeps what is imported of the client's asyncio edition from loading the other one too, and
    what only that needs, such as ``requests`` and ``oauthlib``: 7 MiB. It is the package itself
    that does so, whichever part of it is imported, so it takes part unread. For a process that
    runs the operator alone; without effect when it has been imported already."""
    found = importlib.util.find_spec(_CLIENT)
    if found is not None and _CLIENT not in sys.modules:
        sys.modules[_CLIENT] = importlib.util.module_from_spec(found)
