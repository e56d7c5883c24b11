"""Packed layers compute what the layers that they replace compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLMLP, Qwen2_5_VLRMSNorm
from triptych_worker.vision.packed import FusedRmsNorm, PackedGatedMlp, PackedLinear, can_pack, pack

CPU = torch.device("cpu")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not can_pack(torch.float32, CPU), reason="torch without oneDNN"),
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


def test_other_types_and_devices_are_left_alone() -> None:
    assert not can_pack(torch.bfloat16, CPU)
    assert not can_pack(torch.float32, torch.device("cuda"))
