"""kopf without a memory. It prepares every event for handlers that compare an object with what it
was, and copies the whole of it four times to do so; we have no such handler.
"""

from __future__ import annotations

from typing import Any, Final

import kopf
from kopf._core.engines.peering import Identity
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

# Who this process is among peers, which it has none of. kopf would ask for the user's name, and the
# user of a container has none.
NO_PEER: Final = Identity("triptych-operator")


class NoMemories(ResourceMemories):
    """Remembers no object that was seen."""

    async def recall(self, raw_body: Any, **_: Any) -> ResourceMemory:
        """A blank one."""
        return ResourceMemory()


class NoDifferences(kopf.DiffBaseStorage):
    """Keeps nothing to compare an object with, and nothing of the object to be compared."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Nothing."""

    def store(self, **_: Any) -> None:
        """Nothing is stored."""


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress of handlers: ours are done at once."""

    def fetch(self, **_: Any) -> None:
        """Nothing."""

    def store(self, **_: Any) -> None:
        """Nothing is stored."""

    def purge(self, **_: Any) -> None:
        """There is nothing to remove."""

    def touch(self, **_: Any) -> None:
        """Nothing is stored."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """There is no progress in it."""
        return essence
