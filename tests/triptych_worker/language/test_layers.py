"""What the layers are made of computes what transformers' modules do; whole layers are compared in
test_model.py."""

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb
from triptych_worker.language import layers
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


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("leading", [(1,), (1, 1)])
def test_a_rotation_turns_heads_as_the_module_does(
    *,
    leading: tuple[int, ...],
    dtype: torch.dtype,
    compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not compiled:
        monkeypatch.setattr(layers, "turns", lambda *_: False)
    generator = torch.Generator().manual_seed(2)
    angles = torch.rand(*leading, 6, 8, generator=generator)
    angles = torch.cat((angles, angles), -1)
    cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
    rows = torch.randn(6, 5, 16, generator=generator).to(dtype)
    heads, beside = rows[:, :3], rows[:, 3:].clone()
    one = heads.transpose(0, 1)[None].float()
    angle = [part.view(1, 6, 16).float() for part in (cosine, sine)]
    expected, _ = apply_rotary_pos_emb(one, one, *angle)
    Rotation.of(cosine, sine).apply(heads)
    # PyTorch rounds each of two products to the type, our kernel only their sum.
    step = 1e-6 if dtype is torch.float32 else 2.0**-7
    torch.testing.assert_close(heads.float(), expected[0].transpose(0, 1), rtol=step, atol=step)
    assert torch.equal(rows[:, 3:], beside)
