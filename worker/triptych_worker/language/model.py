"""A family's text model, loaded without its vision part, and its forward over packed tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn.functional import embedding
from transformers import AutoConfig, AutoModel
from triptych_contract.errors import InvalidModel

from triptych_worker.language.attention import AttentionPlan, Segment, single_tokens
from triptych_worker.language.families import TextAdapter, Visual, adapter_of
from triptych_worker.language.layers import Chosen, Deepstack, TextLayers
from triptych_worker.language.layout import KvLayout
from triptych_worker.language.linear import projection
from triptych_worker.language.pool import KvPool
from triptych_worker.weights import ModelFolder, load_part, read_json

_LM_HEAD: Final = "lm_head.weight"
_EMBEDDING: Final = "embed_tokens.weight"
# Rotary embeddings that change with the longest sequence seen: one request would alter another's.
_UNSERVED_ROPE: Final = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """New tokens of many sequences, one after another.

    ``token_ids`` is [T], ``positions`` [axes, T], ``segments`` cover the T tokens in order, and
    ``logit_rows`` are the tokens whose next-token distribution is asked for.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    visual: Visual | None
    segments: Sequence[Segment]
    logit_rows: Sequence[int]


class LanguageModel:
    """Text weights on one device. ``forward`` is called from one thread only."""

    def __init__(self, folder: ModelFolder, dtype: torch.dtype, device: torch.device) -> None:
        config = _config(folder)
        text = config.get_text_config()
        _check_served(text, folder)
        weights = load_part(folder, dtype)
        tensors = {name: tensor.to(device) for name, tensor in weights.tensors.items()}
        self._embedding = _tensor(tensors, _EMBEDDING, folder)
        head = _head(tensors, config, folder)
        self._layers = TextLayers(_text_model(text, tensors, folder, device))
        self._head = projection(head)
        self.adapter: TextAdapter = adapter_of(folder.family, config)
        self.device = device
        self.dtype = dtype
        self.weights_digest = weights.digest
        self.vocab_size = int(head.shape[0])
        self.context_tokens = int(text.max_position_embeddings)
        self.eos_ids = _eos_ids(folder, config, text)
        self.layout = _layout(text, dtype)
        self.row_width = int(self._embedding.shape[1]) * (1 + self.adapter.levels)

    @torch.inference_mode()
    def forward(self, batch: PackedBatch, pool: KvPool) -> torch.Tensor:
        """Logits [len(logit_rows), vocabulary]; writes keys and values of all tokens to ``pool``.

        The range of each sequence must already hold the keys and values of its past.
        """
        hidden = embedding(batch.token_ids, self._embedding)
        if batch.visual is not None:
            rows = batch.visual.rows[:, : hidden.shape[1]]
            hidden[batch.visual.index] = rows.to(hidden.dtype)
        plan = AttentionPlan(batch.segments, pool)
        ended = self._layers.forward(
            hidden,
            batch.positions,
            plan,
            self._chosen(batch, plan, pool),
            self._deepstack(batch.visual),
        )
        if ended is None:
            return hidden.new_empty(0, self.vocab_size)
        return self._head(ended)

    def _chosen(self, batch: PackedBatch, plan: AttentionPlan, pool: KvPool) -> Chosen | None:
        if not batch.logit_rows:
            return None
        segments = list(single_tokens(batch.segments, batch.logit_rows))
        if segments != list(batch.segments):
            plan = AttentionPlan(segments, pool)
        return Chosen(torch.tensor(batch.logit_rows, device=self.device), plan)

    def _deepstack(self, visual: Visual | None) -> Deepstack | None:
        if visual is None or not self.adapter.levels:
            return None
        return Deepstack(visual.index, visual.rows.chunk(1 + self.adapter.levels, dim=1)[1:])


def _config(folder: ModelFolder) -> Any:
    try:
        return AutoConfig.from_pretrained(folder.path, local_files_only=True)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InvalidModel(f"{folder.path / 'config.json'} is not usable: {error}") from error


def _check_served(text: Any, folder: ModelFolder) -> None:
    layer_types = set(getattr(text, "layer_types", None) or ["full_attention"])
    if layer_types != {"full_attention"}:
        raise InvalidModel(
            f"{folder.path} uses {', '.join(sorted(layer_types))}; only full attention is served:"
            " set use_sliding_window to false in config.json"
        )
    rope_type = (getattr(text, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type in _UNSERVED_ROPE:
        raise InvalidModel(
            f"{folder.path} uses {rope_type} rotary embeddings, which change with the length of"
            " other requests; choose a static rope_type in config.json"
        )


def _tensor(tensors: Mapping[str, torch.Tensor], name: str, folder: ModelFolder) -> torch.Tensor:
    if name not in tensors:
        raise InvalidModel(f"the weights in {folder.path} lack {name}; download the model again")
    return tensors[name]


def _head(
    tensors: dict[str, torch.Tensor],
    config: Any,
    folder: ModelFolder,
) -> torch.Tensor:
    if _LM_HEAD not in tensors and config.tie_word_embeddings:
        return _tensor(tensors, _EMBEDDING, folder)
    head = _tensor(tensors, _LM_HEAD, folder)
    del tensors[_LM_HEAD]
    return head


def _text_model(
    text: Any,
    tensors: Mapping[str, torch.Tensor],
    folder: ModelFolder,
    device: torch.device,
) -> torch.nn.Module:
    """The text model around ``tensors``; nothing is initialised only to be overwritten."""
    with torch.device("meta"):
        model = AutoModel.from_config(text, attn_implementation="eager")
    try:
        missing, _ = model.load_state_dict(dict(tensors), strict=False, assign=True)
    except RuntimeError as error:
        raise InvalidModel(
            f"the weights in {folder.path} do not fit its config.json: {error}"
        ) from error
    if missing:
        raise InvalidModel(
            f"the weights in {folder.path} lack {len(missing)} tensors, the first is {missing[0]};"
            " download the model again"
        )
    # The frequencies are computed, not loaded, so these must be made on a real device.
    with device:
        model.rotary_emb = type(model.rotary_emb)(config=text)
    loaded: torch.nn.Module = model.eval().requires_grad_(requires_grad=False)
    return loaded


def _layout(text: Any, dtype: torch.dtype) -> KvLayout:
    heads = int(text.num_attention_heads)
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    return KvLayout(int(text.num_hidden_layers), int(text.num_key_value_heads), head_dim, dtype)


def _eos_ids(folder: ModelFolder, config: Any, text: Any) -> frozenset[int]:
    """Tokens that end an answer: of generation_config.json, else of the model's configuration."""
    path = folder.path / "generation_config.json"
    value = read_json(path).get("eos_token_id") if path.is_file() else None
    if value is None:
        value = getattr(config, "eos_token_id", None) or getattr(text, "eos_token_id", None)
    if value is None:
        return frozenset()
    return frozenset(value if isinstance(value, list) else [value])
