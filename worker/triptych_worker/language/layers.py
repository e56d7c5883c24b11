"""The layers of a Llama-like text model over packed tokens: what transformers' modules compute, in
a third of the calls. A decode step of a small model is otherwise mostly calls.

One module's weights, taken from transformers after it has loaded and checked them; its rotary
embedding is used as it is, since that is where the families differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from triptych_worker.kernels.attention import Shape, prepare
from triptych_worker.kernels.flash import prepare as prepare_flash
from triptych_worker.kernels.norm import prepare as prepare_norm
from triptych_worker.kernels.rotation import prepare as prepare_rotation
from triptych_worker.kernels.rotation import turn, turns
from triptych_worker.language.attention import AttentionPlan
from triptych_worker.language.linear import joined, projection
from triptych_worker.norms import rms_norm


@dataclass(frozen=True, slots=True)
class Rotation:
    """Of one batch, laid out once for all its layers.

    Args:
        cosine: [T, D] of float32 for our kernel, [T, 1, D] of the heads' type for PyTorch.
        sine: likewise; for PyTorch with the sign of the half that it is added to.
        compiled: whether it is for our kernel.
    """

    cosine: torch.Tensor
    sine: torch.Tensor
    compiled: bool

    @staticmethod
    def of(cosine: torch.Tensor, sine: torch.Tensor) -> Rotation:
        """From [..., T, D] each, whose halves are equal and whose other dimensions are 1."""
        cosine, sine = cosine.flatten(0, -2), sine.flatten(0, -2)
        if cosine.device.type == "cpu" and turns(cosine.dtype, cosine.shape[-1]):
            exact = cosine.float().contiguous(), sine.float().contiguous()
            return Rotation(exact[0], exact[1], compiled=True)
        first, second = sine.chunk(2, dim=-1)
        signed = torch.cat((-first, second), -1)
        return Rotation(cosine.unsqueeze(1), signed.unsqueeze(1), compiled=False)

    def apply(self, heads: torch.Tensor) -> None:
        """Turns ``heads`` [T, n, D] in place."""
        if self.compiled:
            turn(heads, self.cosine, self.sine)
            return
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        heads.mul_(self.cosine).addcmul_(swapped, self.sine)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Rows of a batch whose last hidden state is wanted: their indices, and a plan of each as one
    token."""

    index: torch.Tensor
    plan: AttentionPlan


@dataclass(frozen=True, slots=True)
class Deepstack:
    """What is added to rows ``index`` of the hidden states after each of the first layers."""

    index: torch.Tensor
    features: Sequence[torch.Tensor]


class RmsNorm:
    """Root-mean-square normalisation of the last dimension."""

    def __init__(self, module: Any) -> None:
        self._weight: torch.Tensor = module.weight
        self._epsilon: float = module.variance_epsilon
        if self._weight.device.type == "cpu":
            prepare_norm(self._weight.dtype)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., width] -> [..., width]."""
        return rms_norm(rows, self._weight, self._epsilon)


class Attention:
    """Queries, keys and values in one product; keys and values go to the pool."""

    def __init__(self, module: Any, layer: int) -> None:
        self._layer = layer
        self._head_dim: int = module.head_dim
        self._kv_heads: int = module.k_proj.weight.shape[0] // module.head_dim
        self._heads: int = module.q_proj.weight.shape[0] // module.head_dim
        self._scaling: float = module.scaling
        self._qkv = joined(module.q_proj, module.k_proj, module.v_proj)
        self._output = projection(module.o_proj.weight, module.o_proj.bias)
        if module.q_proj.weight.device.type == "cpu":
            weight = module.q_proj.weight
            prepare(Shape(weight.dtype, self._heads, self._kv_heads, self._head_dim))
            prepare_rotation(weight.dtype, self._head_dim)
            prepare_flash(weight.dtype, self._head_dim)
        self._norms = (
            (RmsNorm(module.q_norm), RmsNorm(module.k_norm)) if hasattr(module, "q_norm") else None
        )

    def write(self, rows: torch.Tensor, rotation: Rotation, plan: AttentionPlan) -> torch.Tensor:
        """Keys and values of ``rows`` [T, hidden] go to the pool; their queries [T, heads, D]."""
        parts = self._qkv(rows).view(len(rows), -1, self._head_dim)
        turned, queries = parts[:, : -self._kv_heads], parts[:, : self._heads]
        if self._norms is not None:
            keys = parts[:, self._heads : -self._kv_heads]
            for norm, heads in zip(self._norms, (queries, keys), strict=True):
                heads.copy_(norm(heads))
        rotation.apply(turned)
        plan.write(self._layer, parts[:, self._heads :])
        return queries

    def attend(
        self, queries: torch.Tensor, residual: torch.Tensor, plan: AttentionPlan
    ) -> torch.Tensor:
        """Attention output for ``queries``, projected and added to ``residual`` [T, hidden]."""
        attended = plan.attend(self._layer, queries, self._scaling)
        return self._output.plus(attended, residual)


class Mlp:
    """down(silu(gate(x)) * up(x)), with the residual added."""

    def __init__(self, module: Any) -> None:
        self._gate = projection(module.gate_proj.weight, module.gate_proj.bias)
        self._up = projection(module.up_proj.weight, module.up_proj.bias)
        self._down = projection(module.down_proj.weight, module.down_proj.bias)

    def __call__(self, rows: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """[T, hidden] -> [T, hidden]."""
        return self._down.plus(self._up.times(rows, self._gate.silu(rows)), residual)


class Layer:
    """One decoder layer."""

    def __init__(self, module: Any, number: int) -> None:
        self._before_attention = RmsNorm(module.input_layernorm)
        self._attention = Attention(module.self_attn, number)
        self._before_mlp = RmsNorm(module.post_attention_layernorm)
        self._mlp = Mlp(module.mlp)

    def forward(
        self, hidden: torch.Tensor, rotation: Rotation, plan: AttentionPlan
    ) -> torch.Tensor:
        """[T, hidden] -> [T, hidden]."""
        queries = self._attention.write(self._before_attention(hidden), rotation, plan)
        return self._finish(queries, hidden, plan)

    def forward_last(
        self,
        hidden: torch.Tensor,
        rotation: Rotation,
        plan: AttentionPlan,
        chosen: Chosen | None,
    ) -> torch.Tensor | None:
        """As ``forward`` for the ``chosen`` rows; of the others nothing is wanted but keys and
        values. [T, hidden] -> [chosen, hidden]."""
        queries = self._attention.write(self._before_attention(hidden), rotation, plan)
        if chosen is None:
            return None
        return self._finish(queries[chosen.index], hidden[chosen.index], chosen.plan)

    def _finish(
        self, queries: torch.Tensor, hidden: torch.Tensor, plan: AttentionPlan
    ) -> torch.Tensor:
        hidden = self._attention.attend(queries, hidden, plan)
        return self._mlp(self._before_mlp(hidden), hidden)


class TextLayers:
    """All layers and the last norm.

    Args:
        module: a text model of transformers with its weights, on its device.
    """

    def __init__(self, module: Any) -> None:
        self._rotary = module.rotary_emb
        self._layers = [Layer(layer, number) for number, layer in enumerate(module.layers)]
        self._norm = RmsNorm(module.norm)

    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        plan: AttentionPlan,
        chosen: Chosen | None,
        deepstack: Deepstack | None,
    ) -> torch.Tensor | None:
        """Normalised hidden states of the chosen rows, from what enters the first layer.

        Args:
            hidden: [T, hidden].
            positions: [T] or [axes, T].
            plan: of all T tokens.
            chosen: None if only keys and values are wanted.
            deepstack: for the family that has it.
        """
        rotation = Rotation.of(*self._rotary(hidden, positions.unsqueeze(-2)))
        features = deepstack.features if deepstack else ()
        *layers, last = self._layers
        for number, layer in enumerate(layers):
            hidden = layer.forward(hidden, rotation, plan)
            if deepstack and number < len(features):
                hidden.index_add_(0, deepstack.index, features[number].to(hidden.dtype))
        ended = last.forward_last(hidden, rotation, plan, chosen)
        return None if ended is None else self._norm(ended)
