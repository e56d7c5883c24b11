"""A service on real pods that changes its version again and again, as a user changes it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from coherence.steady_load import SteadyLoad
from coherence.versions import CYCLE, Version
from product import Object, Product

LOAD_SECONDS = 600.0  # for a round of questions, on a machine that starts pods besides


@dataclass
class RolledPods:
    """Beginning with the first version of the cycle, which the example is."""

    product: Product
    versions: dict[str, Version] = field(default_factory=dict)  # by fingerprint
    seconds: list[float] = field(default_factory=list)  # from each change until caches are coherent

    def __post_init__(self) -> None:
        self.versions[self.caches()["fingerprint"]] = CYCLE[0]

    def caches(self) -> Object:
        """What the status says of caches."""
        found: Object = self.product.resource()["status"]["caches"]
        return found

    async def switch(self, version: Version, load: SteadyLoad) -> None:
        """Rolls to ``version`` under ``load``; every question is asked before and after."""
        await load.wait_for(len(load.questions), LOAD_SECONDS)
        began, epoch = time.monotonic(), self.caches()["epoch"]
        await asyncio.to_thread(self.product.change, {"model": _model(version)})
        await asyncio.to_thread(self.product.until, "Ready", "CachesCoherent")
        self.seconds.append(time.monotonic() - began)
        caches = self.caches()
        self.versions[caches["fingerprint"]] = version
        assert (caches["epoch"], caches["reason"]) == (epoch + 1, "EncoderChanged")
        await load.wait_for(len(load.questions), LOAD_SECONDS)


def _model(version: Version) -> Object:
    """What differs from the example."""
    shown = version.service().spec.model.model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    first = CYCLE[0]
    return {
        "encoder": None if version.encoder == first.encoder else shown["encoder"],
        "processor": None if version.side == first.side else shown["processor"],
    }
