"""A worker process as its services see it: who it is, its state, and its tier once loaded."""

from __future__ import annotations

from collections.abc import Sequence

from triptych_contract.config import Revisions
from triptych_contract.errors import FingerprintMismatch, Unavailable
from triptych_contract.names import ENGINE, Tier
from triptych_contract.v1 import common_pb2, worker_pb2

from triptych_worker.domain import Capacity, Load
from triptych_worker.serving import outgoing
from triptych_worker.serving.admission import Admission, State
from triptych_worker.serving.identity import engine_version
from triptych_worker.serving.tier import FingerprintedCache, LoadedTier

_TIERS = {
    Tier.ENCODER: common_pb2.TIER_ENCODER,
    Tier.PREFILL: common_pb2.TIER_PREFILL,
    Tier.DECODE: common_pb2.TIER_DECODE,
    Tier.FUSED: common_pb2.TIER_FUSED,
}
_STATES = {
    State.STARTING: common_pb2.STATE_STARTING,
    State.SERVING: common_pb2.STATE_SERVING,
    State.DRAINING: common_pb2.STATE_DRAINING,
}


class Worker:
    """Listens before its model is loaded, so all that the model gives is absent at first."""

    def __init__(
        self,
        tier: Tier,
        instance: str,
        admission: Admission,
        transports: Sequence[str],
        revisions: Revisions,
    ) -> None:
        self.tier = tier
        self._revisions = revisions
        self.instance = instance
        self.admission = admission
        self._transports = tuple(transports)
        self._loaded: LoadedTier | None = None

    def serve(self, loaded: LoadedTier) -> None:
        """Takes work from now on."""
        self._loaded = loaded
        self.admission.open()

    def close(self) -> None:
        """Ends the stages' threads."""
        if self._loaded:
            self._loaded.close()

    @property
    def caches(self) -> Sequence[FingerprintedCache]:
        """Every cache of the process; none while it starts."""
        return self._loaded.caches if self._loaded else ()

    def load(self) -> Load:
        """What the stages have to do right now."""
        return self._loaded.load() if self._loaded else Load()

    def capacity(self) -> Capacity:
        """The bounds of the stages."""
        return self._loaded.capacity if self._loaded else Capacity()

    def for_encoder(self, fingerprint: str) -> LoadedTier:
        """The tier, for a request that wants embeddings of ``fingerprint``.

        Raises:
            FingerprintMismatch: this process is another encoder.
        """
        loaded = self._require()
        if fingerprint != loaded.fingerprint:
            raise FingerprintMismatch(
                f"this encoder is {loaded.fingerprint[:12]}, the request is for "
                f"{fingerprint[:12]}: use an encoder of that fingerprint"
            )
        return loaded

    def for_model(self, digest: str) -> LoadedTier:
        """The tier, for a request to the language model of ``digest``.

        Raises:
            FingerprintMismatch: this process is another language model.
        """
        loaded = self._require()
        if digest != loaded.model_digest:
            raise FingerprintMismatch(
                f"this language model is {loaded.model_digest[:12]}, the request is for "
                f"{digest[:12]}: use a worker of that model"
            )
        return loaded

    def describe(self) -> worker_pb2.DescribeResponse:
        """All that routers, the operator and people want to know."""
        loaded = self._loaded
        identity = loaded.encoder_identity if loaded else None
        return worker_pb2.DescribeResponse(
            tier=_TIERS[self.tier],
            state=_STATES[self.admission.state],
            instance=self.instance,
            engine=ENGINE,
            engine_version=engine_version(),
            encoder_identity=identity.canonical() if identity else "",
            fingerprint=loaded.fingerprint if loaded else "",
            model_digest=loaded.model_digest if loaded else "",
            kv_layout=loaded.kv_layout if loaded else "",
            capacity=outgoing.capacity(self.capacity()),
            load=outgoing.load(self.load()),
            transports=self._transports,
            can_encode=loaded is not None and loaded.stages.encode is not None,
            language_revision=self._revisions.language,
            encoder_revision=self._revisions.encoder,
        )

    def _require(self) -> LoadedTier:
        if self._loaded is None:
            raise Unavailable("starting; come back when its health is SERVING", retry_after=1.0)
        return self._loaded
