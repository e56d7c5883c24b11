"""What the layers are made of computes what transformers' modules do; whole models are compared in
test_families.py."""

import pytest
import torch
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision
from triptych_worker.kernels import rotation
from triptych_worker.vision.layers import rotate

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("angles", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [8, 72])
def test_queries_and_keys_are_turned_as_the_module_does_and_values_are_not(
    *,
    size: int,
    dtype: torch.dtype,
    angles: torch.dtype,
    compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not compiled:
        monkeypatch.setattr(rotation, "turns", lambda *_: False)
    generator = torch.Generator().manual_seed(size)
    qkv = torch.randn(7, 3, 4, size, generator=generator).to(dtype)
    half = 6 * torch.rand(7, size // 2, generator=generator)
    whole = torch.cat((half, half), -1)
    cosine, sine = whole.cos().to(angles), whole.sin().to(angles)
    query, key, value = (part.clone() for part in qkv.unbind(1))
    wanted = (*apply_rotary_pos_emb_vision(query, key, cosine, sine), value)
    rotate(qkv[:, :2], cosine, sine)
    torch.testing.assert_close(qkv, torch.stack(wanted, 1))
