"""What the layers are made of computes what transformers' modules do; whole layers are compared in
test_model.py."""

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb
from triptych_worker.language.layers import RmsNorm, Rotation

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 48), (7, 48), (5, 3, 16)])
def test_a_norm_is_that_of_the_module(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    module = LlamaRMSNorm(shape[-1], eps=1e-5).to(dtype)
    module.weight.data = torch.rand(shape[-1], generator=generator).to(dtype)
    rows = torch.randn(shape, generator=generator).to(dtype)
    with torch.inference_mode():
        torch.testing.assert_close(RmsNorm(module)(rows), module(rows))


@pytest.mark.parametrize("leading", [(1,), (1, 1)])
def test_a_rotation_turns_heads_as_the_module_does(leading: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(2)
    angles = torch.rand(*leading, 6, 8, generator=generator)
    angles = torch.cat((angles, angles), -1)
    cosine, sine = angles.cos(), angles.sin()
    heads = torch.randn(6, 3, 16, generator=generator)
    expected, _ = apply_rotary_pos_emb(
        heads.transpose(0, 1)[None], heads.transpose(0, 1)[None], cosine[:1].view(1, 6, 16),
        sine[:1].view(1, 6, 16),
    )  # fmt: skip
    Rotation.of(cosine, sine).apply(heads)
    torch.testing.assert_close(heads, expected[0].transpose(0, 1))
