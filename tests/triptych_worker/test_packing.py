import pytest
import torch
from triptych_worker.packing import packs

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def test_float32_is_packed_on_a_cpu_alone() -> None:
    assert packs(torch.float32, CPU)
    assert not packs(torch.float32, torch.device("cuda"))


def test_bfloat16_is_packed_where_the_processor_has_the_instructions() -> None:
    assert packs(torch.bfloat16, CPU) == torch.cpu._is_avx512_bf16_supported()


def test_float16_is_left_to_pytorch() -> None:
    assert not packs(torch.float16, CPU)
