"""``spec.media``, ``spec.transfer`` and ``spec.degraded``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from triptych_operator.api.quantities import Bytes, PositiveBytes
from triptych_operator.api.rules import ApiModel, Obeys, Rule, matches
from triptych_operator.api.scalars import Duration, Network, PositiveDuration

_HEADER: Final = r"^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)?$"

HeaderName = Annotated[
    str,
    Obeys(
        Rule(
            f"self.matches('{_HEADER}')",
            "not the name of a header: letters, digits and dashes, such as x-tenant",
            lambda name: matches(_HEADER, name),
        ),
        max_length=63,
    ),
]
"""Name of an HTTP header, or nothing."""


class Budget(ApiModel):
    """What the pictures of one request may cost."""

    max_items: int = Field(default=16, ge=0, le=1024)
    """Pictures in one request; 0 serves text alone."""
    max_bytes: PositiveBytes = "20Mi"
    """Size of one picture file."""
    max_pixels: int = Field(default=64_000_000, ge=1, le=1_000_000_000)
    """Width times height of one picture, read from its header before anything is decoded."""


class Budgets(ApiModel):
    """Budgets by who asks."""

    default: Budget = Field(default_factory=Budget)
    """The budget of every request."""


class UrlPolicy(ApiModel):
    """Which picture URLs the gateway fetches."""

    allow_networks: tuple[Network, ...] = Field(default=(), max_length=64)
    """Networks that may be fetched from although they are not public, such as 10.1.0.0/16 for an
    object store of your own. Private, loopback, link-local and metadata addresses are refused."""
    fetch_timeout: PositiveDuration = "10s"
    """How long fetching one picture may take."""


class MediaDecode(ApiModel):
    """Decoding of picture files, in processes apart from the gateway's."""

    processes: int = Field(default=2, ge=1, le=256)
    """Decoder processes of one gateway pod: about as many as it has cores."""
    timeout: PositiveDuration = "10s"
    """How long decoding one picture may take."""
    inflight: PositiveBytes = "1Gi"
    """Decoded pictures in memory, all requests of one gateway pod together."""


class Tenants(ApiModel):
    """Who shares cached pictures: only requests of one tenant. A tenant is an API key (the
    Authorization header of a request), and requests without one are a tenant too."""

    header: HeaderName = ""
    """Header that names the tenant instead, such as x-tenant. Only for a gateway behind a proxy
    that sets it, whatever its clients send: who can set it reads that tenant's cache."""


class Uuids(ApiModel):
    """Pictures that clients give a uuid, and then need not send again."""

    capacity: Bytes = "128Mi"
    """Picture files that one gateway pod keeps for that; 0 keeps none."""


class MediaSpec(ApiModel):
    """What happens to pictures before they reach the encoder."""

    budgets: Budgets = Field(default_factory=Budgets)
    """What the pictures of a request may cost; more is refused with a message that says so."""
    url_policy: UrlPolicy = Field(default_factory=UrlPolicy)
    """Which picture URLs are fetched."""
    decode: MediaDecode = Field(default_factory=MediaDecode)
    """How picture files are decoded."""
    tenants: Tenants = Field(default_factory=Tenants)
    """Who shares cached pictures."""
    uuids: Uuids = Field(default_factory=Uuids)
    """Pictures that clients name."""


class TransferSpec(ApiModel):
    """How embeddings and keys and values move between the tiers."""

    transport: Literal["auto", "grpc", "nixl"] = "auto"
    """auto takes the fastest that both ends have; grpc works everywhere; nixl uses shared memory
    or RDMA."""
    lease: PositiveDuration = "30s"
    """How long a tensor is kept for the peer that has been told to fetch it."""
    timeout: PositiveDuration = "20s"
    """How long one fetch may take."""
    landing: PositiveBytes = "1Gi"
    """Memory of each pod for tensors that arrive and are not yet used."""


class DegradedSpec(ApiModel):
    """What is still served when a part is lost."""

    on_encoder_loss: Literal["EncodeInline", "Queue", "RejectMultimodal"] = "RejectMultimodal"
    """When no encoder is up: EncodeInline lets the prefill or fused tier encode (prefill pods then
    keep the encoder's weights in memory too), Queue makes requests with pictures wait for
    queueTimeout, RejectMultimodal answers them with 503. Text goes on in each case."""
    queue_timeout: Duration = "30s"
    """How long Queue waits for an encoder to come back."""
