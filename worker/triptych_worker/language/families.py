"""What differs between the text models of the families: positions and arguments of a forward."""

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
    """One family's way to run its text model over packed tokens."""

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

    def arguments(self, positions: torch.Tensor, visual: Visual | None) -> dict[str, object]:
        """Keyword arguments of the text model for ``positions`` [axes, T]."""
        ...


@dataclass(frozen=True, slots=True)
class PlainAdapter:
    """Llama-like text: tokens are counted."""

    axes: int = 1
    levels: int = 0

    def positions(self, prompt: Prompt) -> tuple[torch.Tensor, int]:
        """See TextAdapter."""
        return text_positions(len(prompt.token_ids)), 0

    def arguments(self, positions: torch.Tensor, visual: Visual | None) -> dict[str, object]:
        """See TextAdapter."""
        del visual
        return {"position_ids": positions}


@dataclass(frozen=True, slots=True)
class MropeAdapter:
    """Qwen2-VL and Qwen2.5-VL: positions in time, height and width."""

    merge: int
    axes: int = 3
    levels: int = 0

    def positions(self, prompt: Prompt) -> tuple[torch.Tensor, int]:
        """See TextAdapter."""
        return mrope_positions(len(prompt.token_ids), prompt.media, self.merge)

    def arguments(self, positions: torch.Tensor, visual: Visual | None) -> dict[str, object]:
        """See TextAdapter."""
        del visual
        # A mapping is taken as masks already made; ours are in the attention plan.
        return {
            "position_ids": positions.unsqueeze(1),
            "attention_mask": {"full_attention": None},
        }


@dataclass(frozen=True, slots=True)
class DeepstackAdapter:
    """Qwen3-VL: also features of inner vision layers, added after the first text layers."""

    merge: int
    levels: int
    axes: int = 3

    def positions(self, prompt: Prompt) -> tuple[torch.Tensor, int]:
        """See TextAdapter."""
        return mrope_positions(len(prompt.token_ids), prompt.media, self.merge)

    def arguments(self, positions: torch.Tensor, visual: Visual | None) -> dict[str, object]:
        """See TextAdapter."""
        arguments: dict[str, object] = {"position_ids": positions.unsqueeze(1)}
        if visual is not None:
            mask = torch.zeros(positions.shape[1], dtype=torch.bool, device=positions.device)
            mask[visual.index] = True
            arguments["visual_pos_masks"] = mask.unsqueeze(0)
            arguments["deepstack_visual_embeds"] = visual.rows.chunk(1 + self.levels, dim=1)[1:]
        return arguments


def adapter_of(family: Family, config: Any) -> TextAdapter:
    """The adapter for a model whose transformers configuration is ``config``."""
    return _ADAPTERS[family](config)


_ADAPTERS: Final[Mapping[Family, Callable[[Any], TextAdapter]]] = {
    Family.QWEN2_VL: lambda config: MropeAdapter(config.vision_config.spatial_merge_size),
    Family.QWEN2_5_VL: lambda config: MropeAdapter(config.vision_config.spatial_merge_size),
    Family.QWEN3_VL: lambda config: DeepstackAdapter(
        config.vision_config.spatial_merge_size,
        len(config.vision_config.deepstack_visual_indexes),
    ),
    Family.SMOLVLM: lambda config: PlainAdapter(),
}
