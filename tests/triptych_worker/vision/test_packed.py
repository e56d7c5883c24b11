"""Packed layers compute what the layers that they replace compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLMLP, Qwen2_5_VLRMSNorm
from triptych_worker.packing import packs
from triptych_worker.vision.packed import FusedRmsNorm, PackedGatedMlp, PackedLinear, pack

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not packs(torch.float32, torch.device("cpu")), reason="torch without oneDNN"
    ),
]


def layers() -> nn.ModuleDict:
    torch.manual_seed(5)
    config = Qwen2_5_VLVisionConfig(hidden_size=48, intermediate_size=80, hidden_act="silu")
    modules = nn.ModuleDict(
        {
            "linear": nn.Linear(48, 33),
            "bare": nn.Sequential(nn.Linear(48, 64, bias=False), nn.GELU()),
            "mlp": Qwen2_5_VLMLP(config, bias=True),
            "norm": Qwen2_5_VLRMSNorm(48),
        }
    )
    return modules.requires_grad_(requires_grad=False)


@pytest.mark.parametrize("shape", [(1, 48), (7, 48), (1500, 48), (2, 3, 48)])
def test_results_are_those_of_the_layers_replaced(shape: tuple[int, ...]) -> None:
    plain, packed = layers(), layers()
    pack(packed)
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    for name in plain:
        torch.testing.assert_close(packed[name](rows), plain[name](rows), rtol=0, atol=5e-6)


def test_every_layer_that_has_a_packed_form_is_replaced() -> None:
    packed = layers()
    pack(packed)
    assert isinstance(packed["linear"], PackedLinear)
    assert isinstance(packed["bare"][0], PackedLinear)
    assert isinstance(packed["mlp"], PackedGatedMlp)
    assert isinstance(packed["norm"], FusedRmsNorm)


def test_in_bfloat16_they_are_rounded_no_worse_than_the_layers_replaced() -> None:
    exact, plain, packed = layers(), layers().bfloat16(), layers().bfloat16()
    pack(packed)
    rows = torch.randn(200, 48, generator=torch.Generator().manual_seed(1)).bfloat16()
    for name in plain:
        wanted = exact[name](rows.float())
        errors = [(one[name](rows).float() - wanted).abs().mean() for one in (packed, plain)]
        assert errors[0] <= 1.02 * errors[1], name
