"""Which replica of the operator acts: the one that holds a Lease.

The rules of Kubernetes' own components: a Lease is free when its holder has not renewed it for
its duration, by the clock of whoever looks (clocks of two machines are never compared), and a
holder that cannot renew stops before anybody else may begin. ``holds`` is asked before every write,
since a process that was stopped for long finds its work before it finds that it has lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from triptych_operator.cluster.answers import Object
from triptych_operator.cluster.api import Api
from triptych_operator.cluster.kinds import LEASE
from triptych_operator.cluster.refusals import CONFLICT, Refusal

_logger = logging.getLogger(__name__)
_GIVE_UP: Final = 2 / 3  # of the duration: then a holder that could not renew stops


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants which Lease, and for how long it lasts. Durations in seconds."""

    namespace: str
    name: str
    identity: str
    duration: float
    renew: float


class LeaseElection:
    """Acquires one Lease, holds it, gives it back."""

    def __init__(self, api: Api, claim: Claim, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._claim = claim
        self._clock = clock
        self._seen: tuple[str, str] = ("", "")  # holder and time of renewal as last seen
        self._seen_at = float("-inf")  # loop time since when it stands
        self._renewed_at = float("-inf")

    def holds(self) -> bool:
        """Whether nobody else can have taken the Lease yet."""
        return asyncio.get_running_loop().time() < self._safe_until

    async def acquire(self) -> None:
        """Waits until the Lease is ours."""
        while not await self._try():  # noqa: ASYNC110 - nobody tells us when a Lease ends
            await asyncio.sleep(self._claim.renew)
        _logger.info("leads, as %s", self._claim.identity)

    async def hold(self) -> None:
        """Renews the Lease for as long as that works; returns when it is not safe to act."""
        while self.holds():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._safe_until):
                    await asyncio.sleep(self._claim.renew)
                    await self._try()
        _logger.error("could not renew Lease %s in time: stops", self._claim.name)

    async def release(self) -> None:
        """Gives the Lease back, so that another need not wait for its end."""
        self._renewed_at = float("-inf")
        try:
            lease = await self._api.find(LEASE, self._claim.namespace, self._claim.name)
            if lease is not None and _holder(lease) == self._claim.identity:
                await self._api.replace(LEASE, self._with_holder(lease, ""))
        except Refusal as refused:
            _logger.warning("the Lease was not given back: %s", refused.message)

    async def _try(self) -> bool:
        """One attempt to acquire or renew, in less time than until the next."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._claim.renew):
                ours = await self._acquire_or_renew()
        except TimeoutError:
            _logger.warning("the API server did not answer about the Lease in time")
            return False
        except Refusal as refused:
            if refused.status != CONFLICT:
                _logger.warning("Lease %s: %s", self._claim.name, refused.message)
            return False
        # Whose Lease another has taken has none, however young its last renewal is.
        self._renewed_at = began if ours else float("-inf")
        return ours

    @property
    def _safe_until(self) -> float:
        return self._renewed_at + self._claim.duration * _GIVE_UP

    async def _acquire_or_renew(self) -> bool:
        lease = await self._api.find(LEASE, self._claim.namespace, self._claim.name)
        if lease is None:
            await self._api.create(LEASE, self._with_holder(self._empty(), self._claim.identity))
            return True
        if not self._may_take(lease):
            return False
        await self._api.replace(LEASE, self._with_holder(lease, self._claim.identity))
        return True

    def _may_take(self, lease: Object) -> bool:
        now = asyncio.get_running_loop().time()
        seen = (_holder(lease), str(_spec(lease).get("renewTime", "")))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        if seen[0] in ("", self._claim.identity):
            return True
        lasts = float(_spec(lease).get("leaseDurationSeconds") or self._claim.duration)
        return now - self._seen_at > lasts

    def _with_holder(self, lease: Object, holder: str) -> Object:
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = _spec(lease)
        changes = {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(self._claim.duration),
            "renewTime": now,
        }
        if holder != spec.get("holderIdentity"):
            changes["acquireTime"] = now
            changes["leaseTransitions"] = int(spec.get("leaseTransitions", 0)) + 1
        return {**lease, "spec": {**spec, **changes}}

    def _empty(self) -> Object:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": {"namespace": self._claim.namespace, "name": self._claim.name},
            "spec": {},
        }


def _spec(lease: Object) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = lease.get("spec") or {}
    return spec


def _holder(lease: Object) -> str:
    return str(_spec(lease).get("holderIdentity") or "")
