"""What differs between the text models of the families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from triptych_worker.domain import Prompt
from triptych_worker.language.positions import mrope_positions, text_positions
from triptych_worker.weights import Family


@dataclass(frozen=True, slots=True)
class Visual:
    """Embedding rows of a batch: ``rows[i]`` replaces packed token ``index[i]``.

    ``rows`` is [n, hidden * (1 + levels)]: what enters the first layer, then what is added to the
    output of each of the first ``levels`` layers.
    """

    index: torch.Tensor
    rows: torch.Tensor


class TextAdapter(Protocol):
    """What one family's text model is given beside tokens."""

    @property
    def axes(self) -> int:
        """Rows of position ids."""
        ...

    @property
    def levels(self) -> int:
        """Deepstack levels that travel in an embedding row."""
        ...

    def positions(self, prompt: Prompt) -> tuple[torch.Tensor, int]:
        """Position ids [axes, tokens] and the delta of positions after the prompt.

        Raises:
            InvalidRequest: the media are not what the family expects.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainAdapter:
    """Llama-like text: tokens are counted."""

    axes: int = 1
    levels: int = 0

    def positions(self, prompt: Prompt) -> tuple[torch.Tensor, int]:
        """See TextAdapter."""
        return text_positions(len(prompt.token_ids)), 0


@dataclass(frozen=True, slots=True)
class MropeAdapter:
    """Qwen: positions in time, height and width. Qwen3-VL also has ``levels`` of deepstack:
    features of inner vision layers, added after the first text layers."""

    merge: int
    levels: int = 0
    axes: int = 3

    def positions(self, prompt: Prompt) -> tuple[torch.Tensor, int]:
        """See TextAdapter."""
        return mrope_positions(len(prompt.token_ids), prompt.media, self.merge)


def adapter_of(family: Family, config: Any) -> TextAdapter:
    """The adapter for a model whose transformers configuration is ``config``."""
    return _ADAPTERS[family](config)


_ADAPTERS: Final[Mapping[Family, Callable[[Any], TextAdapter]]] = {
    Family.QWEN2_VL: lambda config: MropeAdapter(config.vision_config.spatial_merge_size),
    Family.QWEN2_5_VL: lambda config: MropeAdapter(config.vision_config.spatial_merge_size),
    Family.QWEN3_VL: lambda config: MropeAdapter(
        config.vision_config.spatial_merge_size,
        len(config.vision_config.deepstack_visual_indexes),
    ),
    Family.SMOLVLM: lambda config: PlainAdapter(),
}
