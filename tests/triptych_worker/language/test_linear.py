import pytest
import torch
from torch.nn.functional import linear
from triptych_worker.language.linear import PackedLinear, missing_rows, pack_linears, product

pytestmark = pytest.mark.torch

WEIGHT = torch.randn(40, 24, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("rows", [1, 3, 4, 8, 33])
def test_a_packed_product_is_the_plain_one(rows: int) -> None:
    inputs = torch.randn(rows, 24, generator=torch.Generator().manual_seed(rows))
    with torch.inference_mode():
        torch.testing.assert_close(product(WEIGHT)(inputs), linear(inputs, WEIGHT))


def test_layers_are_replaced_wherever_they_are_and_keep_their_bias() -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.ReLU())
    model = torch.nn.Sequential(inner, torch.nn.Linear(40, 8, bias=False)).requires_grad_(
        requires_grad=False
    )
    inputs = torch.randn(2, 5, 24)
    expected = model(inputs)
    pack_linears(model)
    assert isinstance(inner[0], PackedLinear)
    assert isinstance(model[1], PackedLinear)
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(40,)]
    with torch.inference_mode():
        torch.testing.assert_close(model(inputs), expected)


def test_other_types_than_float32_stay_as_they_are() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(24, 40, dtype=torch.bfloat16))
    pack_linears(model)
    assert isinstance(model[0], torch.nn.Linear)
    assert missing_rows(WEIGHT.bfloat16(), 1) == 0


@pytest.mark.parametrize(("rows", "missing"), [(1, 3), (3, 1), (4, 0), (9, 0)])
def test_few_rows_are_filled_up(rows: int, missing: int) -> None:
    assert missing_rows(WEIGHT, rows) == missing
