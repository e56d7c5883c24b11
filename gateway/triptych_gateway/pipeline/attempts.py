"""How often a request may be tried again. Pure bookkeeping."""

from __future__ import annotations

from typing import Final

from triptych_contract.errors import TriptychError, Unavailable

from triptych_gateway.tiers.calls import PodLost

# A request during which this many pods vanished is not shown to another one: it may be the cause.
_MOST_LOST: Final = 2


class Attempts:
    """The pods that went away while they worked on one request."""

    def __init__(self) -> None:
        self._lost: set[str] = set()

    @property
    def exhausted(self) -> bool:
        """Whether too many pods went away with this request."""
        return len(self._lost) >= _MOST_LOST

    def failed(self, address: str, error: TriptychError) -> None:
        """Records a failed try.

        Raises:
            Unavailable: too many pods went away with this request.
        """
        if isinstance(error, PodLost) and error.reached:
            self._lost.add(address)
        if self.exhausted:
            raise Unavailable(
                f"{_MOST_LOST} pods went away while they worked on this request; it is not tried "
                "again",
                retry_after=5.0,
            ) from error
