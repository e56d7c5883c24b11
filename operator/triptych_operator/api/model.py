"""``spec.model`` and ``spec.engine``: what is served, and by which program."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from triptych_operator.api.rules import ApiModel, Immutable, Rule
from triptych_operator.api.scalars import ClaimName, ImageReference, ModelSource, Scalar, Text

_NOT_A_LOCAL_FOLDER = Rule(
    cel="!self.source.startsWith('file://')",
    message="file:// is for `triptych up` on one machine; in a cluster use pvc://CLAIM/PATH, "
    "hf://ORG/NAME or builtin://NAME",
    holds=lambda given: not given.source.startswith("file://"),
)


class EncoderModel(ApiModel):
    """A vision encoder whose version moves apart from the language model's."""

    cluster_rules: ClassVar[tuple[Rule, ...]] = (_NOT_A_LOCAL_FOLDER,)

    source: ModelSource
    """Where the encoder's files come from: builtin://NAME, hf://ORG/NAME or pvc://CLAIM/PATH. It
    must fit the language model: same family and same width of an embedding."""
    revision: Text
    """Version of the encoder, pinned: a tag or commit of the source. Part of the encoder
    fingerprint, so changing it flushes every cache that holds the old encoder's embeddings."""


class ProcessorSpec(ApiModel):
    """Overrides of the image processor that stands in the model folder."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.minPixels) || !has(self.maxPixels) || self.minPixels <= self.maxPixels",
            message="minPixels must not exceed maxPixels: lower minPixels or raise maxPixels",
            holds=lambda given: (
                given.min_pixels is None
                or given.max_pixels is None
                or given.min_pixels <= given.max_pixels
            ),
        ),
    )

    revision: str = Field(default="", max_length=256)
    """Version of the processor when it is not that of the model. Part of the fingerprint."""
    min_pixels: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Smaller pictures are scaled up to this many pixels. Default: what the model folder says."""
    max_pixels: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Larger pictures are scaled down to this many pixels: the strongest lever on the cost of a
    picture. Default: what the model folder says."""
    parameters: dict[str, Scalar] = Field(default_factory=dict, max_length=64)
    """Other parameters of the processor by its own names, such as do_resize: false. Values are
    strings, numbers, booleans or null. All are part of the fingerprint."""


class ModelSpec(ApiModel):
    """What is served."""

    cluster_rules: ClassVar[tuple[Rule, ...]] = (_NOT_A_LOCAL_FOLDER,)

    source: ModelSource
    """Where the model's files come from: builtin://NAME (comes with Triptych), hf://ORG/NAME
    (Hugging Face Hub) or pvc://CLAIM/PATH (a folder in a PersistentVolumeClaim)."""
    revision: Text
    """Version of the model, pinned: "1" for a built-in one, a commit or tag on the Hub. Part of
    every fingerprint, so two versions never share an embedding."""
    served_name: Annotated[
        Text,
        Immutable(
            "servedName cannot be changed, since clients ask for the model by it: make another "
            "MultimodalService and move the clients there"
        ),
    ]
    """Name that clients put into the "model" field of a request. It cannot be changed."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of weights and activations: bfloat16 suits GPUs, float32 is fastest on CPUs."""
    encoder: EncoderModel | None = None
    """A vision encoder other than the one in the model's own folder."""
    processor: ProcessorSpec = Field(default_factory=ProcessorSpec)
    """How pictures become pixels for the encoder."""
    download_claim: ClaimName | None = None
    """PersistentVolumeClaim that keeps what hf:// sources download, so that pods that share it
    download once (use ReadWriteMany, or ReadWriteOnce on one node). Default: every pod downloads
    for itself."""


class EngineSpec(ApiModel):
    """The program that runs the stages."""

    name: Literal["triptych"] = "triptych"
    """Which engine: triptych, the one that comes with the operator."""
    image: ImageReference | None = None
    """Container image of all tiers. Default: the image of the operator's own version."""
    args: tuple[Text, ...] = Field(default=(), max_length=32)
    """More command-line arguments of the worker tiers."""
