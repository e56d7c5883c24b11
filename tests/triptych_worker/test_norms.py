"""Any rows are normalised as transformers' module does it, with our kernel and without."""

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from triptych_worker.kernels import norm
from triptych_worker.norms import rms_norm

pytestmark = pytest.mark.torch

WIDE = torch.randn(6, 9, 48, generator=torch.Generator().manual_seed(1))
ROWS = {
    "one": WIDE[0, :1],
    "rows": WIDE[0],
    "no rows": WIDE[0, :0],
    "a vector": WIDE[0, 0],
    "heads": WIDE,
    "heads beside others": WIDE[:, 2:5],
    "part of each": WIDE[:, :, 5:21],
    "turned": WIDE.transpose(0, 1),
    "every second number": WIDE[:, :, ::2],
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list(ROWS))
def test_rows_however_they_lie_are_as_the_modules(
    *, name: str, dtype: torch.dtype, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(norm, "normalises", lambda _: False)
    lying = ROWS[name]
    rows = torch.empty_strided(lying.shape, lying.stride(), dtype=dtype).copy_(lying)
    module = LlamaRMSNorm(rows.shape[-1], eps=1e-5).to(dtype)
    module.weight.data = WIDE[5, 8, : rows.shape[-1]].to(dtype)
    before = rows.clone()
    with torch.inference_mode():
        made = rms_norm(rows, module.weight, 1e-5)
        torch.testing.assert_close(made, module(rows))
    assert torch.equal(rows, before)


def test_a_weight_of_another_type_is_left_to_pytorch() -> None:
    rows, weight = WIDE[0].bfloat16(), torch.full((48,), 2.0)
    twice = rms_norm(rows, weight, 1e-5)
    assert twice.dtype is torch.bfloat16
    assert torch.equal(twice, rms_norm(rows, weight.bfloat16(), 1e-5))
