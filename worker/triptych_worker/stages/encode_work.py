"""What the encode stage does off the event loop: run the model on a batch, publish what it made.

An error stays with its item. Whatever one picture does to a batch, the others are encoded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import torch
from triptych_contract.errors import InternalError, InvalidRequest, NonFinite, TriptychError
from triptych_contract.names import Metric, Stage

from triptych_worker.domain import (
    EncodeInput,
    Handle,
    HandleKind,
    Observer,
    TensorHolder,
    VisionModel,
)

_log = logging.getLogger(__name__)

Made = torch.Tensor | TriptychError
Published = Handle | TriptychError


class EncodeWork:
    """The blocking half of the encode stage. ``encode`` and ``publish`` have a thread each."""

    def __init__(
        self,
        model: VisionModel,
        holder: TensorHolder,
        fingerprint: str,
        *,
        observer: Observer,
    ) -> None:
        self._observer = observer
        self._model = model
        self._holder = holder
        self._fingerprint = fingerprint

    def encode(self, items: Sequence[EncodeInput]) -> list[Made]:
        """An embedding or an error for each item: if a batch fails, each is tried alone."""
        try:
            embeddings = self._encode(items)
            return [_checked(item, made) for item, made in zip(items, embeddings, strict=True)]
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the others
            if len(items) > 1:
                return [self.encode([item])[0] for item in items]
            return [_as_error(error)]

    def _encode(self, items: Sequence[EncodeInput]) -> list[torch.Tensor]:
        began = time.perf_counter()
        try:
            return self._model.encode(items)
        finally:
            seconds = time.perf_counter() - began
            self._observer.add(Metric.BUSY_SECONDS, seconds, stage=Stage.ENCODE)

    def publish(
        self, items: Sequence[EncodeInput], made: Sequence[Made], seconds: float
    ) -> list[Published]:
        """A leased handle or an error for each item, of a batch that took ``seconds``."""
        tokens = sum(item.visual_tokens for item in items)
        return [
            embedding
            if isinstance(embedding, TriptychError)
            else self._publish_one(item.key, embedding, seconds * item.visual_tokens / tokens)
            for item, embedding in zip(items, made, strict=True)
        ]

    def _publish_one(self, key: bytes, embedding: torch.Tensor, seconds: float) -> Published:
        try:
            return self._holder.publish(
                HandleKind.EMBEDDING, key, self._fingerprint, embedding, seconds=seconds
            )
        except Exception as error:  # noqa: BLE001 - as for the model
            return _as_error(error)


def wrong_rows(made: int, announced: int) -> InvalidRequest:
    """The error for a picture whose embedding has not the rows that its request announced."""
    return InvalidRequest(
        f"the picture makes {made} embedding rows, {announced} are announced: use the processor of"
        " this model"
    )


def _checked(item: EncodeInput, embedding: torch.Tensor) -> Made:
    if len(embedding) != item.visual_tokens:
        return wrong_rows(len(embedding), item.visual_tokens)
    if not bool(embedding.isfinite().all()):
        return NonFinite("the encoder answered NaN or infinity for this picture: send another")
    return embedding


def _as_error(error: Exception) -> TriptychError:
    if isinstance(error, TriptychError):
        return error
    _log.error("encoding failed", exc_info=error)
    return InternalError(f"encoding failed with {type(error).__name__}: see this encoder's log")
