"""The whole resource: ``MultimodalService``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, JsonValue
from triptych_contract.names import TOPOLOGY_TIERS, Tier, Topology

from triptych_operator.api.balance import Balance
from triptych_operator.api.media import DegradedSpec, MediaSpec, TransferSpec
from triptych_operator.api.model import EngineSpec, ModelSpec
from triptych_operator.api.rollout import RolloutSpec
from triptych_operator.api.rules import ApiModel, Rule
from triptych_operator.api.scalars import LabelValue, label_names_rule
from triptych_operator.api.tiers import (
    DecodeTier,
    EncoderTier,
    FusedTier,
    GatewayTier,
    PrefillTier,
    Tiers,
    TierSpec,
)

GROUP: Final = "triptych.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "MultimodalService"
PLURAL: Final = "multimodalservices"
# Child names are NAME-TIER, and a label value and a Service name hold 63 characters.
NAME_LIMIT: Final = 40


def _topology_rule(topology: Topology) -> Rule:
    allowed = TOPOLOGY_TIERS[topology]
    foreign = [tier for tier in Tier if tier not in allowed]
    absent = " && ".join(f"!has(self.tiers.{tier})" for tier in foreign)
    return Rule(
        cel=f"self.topology != '{topology}' || !has(self.tiers) || ({absent})",
        message=f"topology {topology} has the tiers {', '.join(allowed)}: remove the others from "
        "tiers, or choose another topology",
        holds=lambda spec: (
            spec.topology != topology or all(getattr(spec.tiers, tier) is None for tier in foreign)
        ),
    )


# A tier that is left out has the defaults of its kind, which are made once: to validate them at
# every look would be most of what a reconcile costs.
_ENCODER: Final = EncoderTier()
_PREFILL: Final = PrefillTier()
_DECODE: Final = DecodeTier()
_FUSED: Final = FusedTier()
_GATEWAY: Final = GatewayTier()


class ServiceSpec(ApiModel):
    """What to serve, and how."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *(_topology_rule(topology) for topology in Topology),
        Rule(
            cel="self.topology != 'Fused' || !has(self.degraded)"
            " || self.degraded.onEncoderLoss == 'RejectMultimodal'",
            message="topology Fused has no encoder tier to lose: remove degraded.onEncoderLoss, or "
            "choose EncodeSplit or FullSplit",
            holds=lambda spec: (
                spec.topology is not Topology.FUSED
                or spec.degraded.on_encoder_loss == "RejectMultimodal"
            ),
        ),
        Rule(
            cel="!has(self.tiers) || !has(self.tiers.encoder) || "
            "!has(self.tiers.encoder.autoscaling) || "
            "!has(self.tiers.encoder.autoscaling.scaleToZeroAfter) || "
            "(has(self.degraded) && self.degraded.onEncoderLoss != 'RejectMultimodal')",
            message="encoders that scale to zero are waited for: set degraded.onEncoderLoss to "
            "Queue or EncodeInline, or remove scaleToZeroAfter",
            holds=lambda spec: (
                not spec.encoder_rests or spec.degraded.on_encoder_loss != "RejectMultimodal"
            ),
        ),
        Rule(
            cel="!has(self.balance) || self.topology != 'Fused'",
            message="topology Fused has no tiers to balance: remove balance",
            holds=lambda spec: spec.balance is None or spec.topology is not Topology.FUSED,
        ),
        Rule(
            cel="!has(self.balance) || !has(self.balance.prefillPerDecode) || "
            "self.topology != 'EncodeSplit'",
            message="topology EncodeSplit runs prefill and decode in one tier: remove "
            "balance.prefillPerDecode",
            holds=lambda spec: (
                spec.balance is None
                or spec.balance.prefill_per_decode is None
                or spec.topology is not Topology.ENCODE_SPLIT
            ),
        ),
    )

    model: ModelSpec
    """What is served."""
    topology: Topology
    """Which tiers serve it. Fused: one pool runs everything. EncodeSplit: encoders apart from
    prefill and decode. FullSplit: encoder, prefill and decode are three pools."""
    engine: EngineSpec = Field(default_factory=EngineSpec)
    """The program that runs the stages."""
    tiers: Tiers = Field(default_factory=Tiers)
    """How many pods of each stage there are, and what each may use."""
    balance: Balance | None = None
    """Bounds of the ratios between autoscaled tiers."""
    media: MediaSpec = Field(default_factory=MediaSpec)
    """What happens to pictures before they reach the encoder."""
    transfer: TransferSpec = Field(default_factory=TransferSpec)
    """How tensors move between the tiers."""
    degraded: DegradedSpec = Field(default_factory=DegradedSpec)
    """What is still served when a part is lost."""
    rollout: RolloutSpec = Field(default_factory=RolloutSpec)
    """How a new version of the service takes over from the old one."""

    @property
    def encoder(self) -> EncoderTier:
        """The encoder tier, given or by default."""
        return self.tiers.encoder or _ENCODER

    @property
    def prefill(self) -> PrefillTier:
        """The prefill tier, given or by default."""
        return self.tiers.prefill or _PREFILL

    @property
    def decode(self) -> DecodeTier:
        """The decode tier, given or by default."""
        return self.tiers.decode or _DECODE

    @property
    def fused(self) -> FusedTier:
        """The fused tier, given or by default."""
        return self.tiers.fused or _FUSED

    @property
    def gateway(self) -> GatewayTier:
        """The gateway tier, given or by default."""
        return self.tiers.gateway or _GATEWAY

    @property
    def encoder_rests(self) -> bool:
        """Whether the encoder tier may have no pod at all."""
        autoscaling = self.encoder.autoscaling
        return autoscaling is not None and autoscaling.scale_to_zero_after is not None

    def tier(self, tier: Tier) -> TierSpec:
        """What all tiers have in common, of ``tier``."""
        tiers: dict[Tier, TierSpec] = {
            Tier.ENCODER: self.encoder,
            Tier.PREFILL: self.prefill,
            Tier.DECODE: self.decode,
            Tier.FUSED: self.fused,
            Tier.GATEWAY: self.gateway,
        }
        return tiers[tier]


# What we take and do not keep.
Unread = Annotated[None, BeforeValidator(lambda _: None)]


class Metadata(ApiModel):
    """The object's metadata, whose meaning the API server owns."""

    rules: ClassVar[tuple[Rule, ...]] = (
        label_names_rule("labels"),
        label_names_rule("annotations"),
    )

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    labels: dict[str, LabelValue] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    generate_name: Unread = None
    self_link: Unread = None
    resource_version: Unread = None
    creation_timestamp: Unread = None
    deletion_timestamp: Unread = None
    deletion_grace_period_seconds: Unread = None
    owner_references: Unread = None
    finalizers: Unread = None
    managed_fields: Unread = None


class MultimodalService(ApiModel):
    """A vision-language model served by pools of encoder, prefill and decode pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.matches('^[a-z]([-a-z0-9]{{0,{NAME_LIMIT - 2}}}[a-z0-9])?$')",
            message=f"metadata.name must be at most {NAME_LIMIT} characters, lower-case letters, "
            "digits and dashes, beginning with a letter: Services are named after it",
            holds=lambda service: _is_service_name(service.metadata.name),
        ),
    )

    api_version: Literal["triptych.dev/v1alpha1"]
    kind: Literal["MultimodalService"]
    metadata: Metadata
    spec: ServiceSpec
    """What to serve, and how."""
    status: JsonValue = None
    """What the operator saw last; never an input."""


def _is_service_name(name: str) -> bool:
    plain = name.isascii() and name.replace("-", "a").isalnum() and name == name.lower()
    return plain and len(name) <= NAME_LIMIT and name[0].isalpha() and name[-1] != "-"
