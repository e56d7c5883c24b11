import pytest
import torch
from torch.nn.functional import linear, silu
from triptych_worker.language.linear import (
    PackedProjection,
    PlainProjection,
    joined,
    projection,
)

pytestmark = pytest.mark.torch

WEIGHT = torch.randn(40, 24, generator=torch.Generator().manual_seed(1))
BIAS = torch.randn(40, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("bias", [None, BIAS], ids=["no bias", "bias"])
@pytest.mark.parametrize("kind", [PackedProjection, PlainProjection])
@pytest.mark.parametrize("rows", [1, 3, 4, 8, 33])
def test_a_projection_is_the_product_with_what_follows_it(
    rows: int, kind: type[PackedProjection | PlainProjection], bias: torch.Tensor | None
) -> None:
    inputs = torch.randn(rows, 24, generator=torch.Generator().manual_seed(rows))
    other = torch.randn(rows, 40, generator=torch.Generator().manual_seed(rows + 1))
    kept = other.clone()
    expected = linear(inputs, WEIGHT, bias)
    made = kind(WEIGHT, bias)
    with torch.inference_mode():
        torch.testing.assert_close(made(inputs), expected)
        torch.testing.assert_close(made.silu(inputs), silu(expected))
        torch.testing.assert_close(made.times(inputs, other), expected * other)
        torch.testing.assert_close(made.plus(inputs, other), expected + other)
    assert torch.equal(other, kept)


def test_a_projection_is_packed_where_that_pays() -> None:
    assert isinstance(projection(WEIGHT), PackedProjection)
    assert isinstance(projection(WEIGHT.half()), PlainProjection)


@pytest.mark.parametrize("bias", [True, False])
def test_joined_layers_give_their_outputs_side_by_side(*, bias: bool) -> None:
    layers = [torch.nn.Linear(24, size, bias=bias) for size in (8, 4, 12)]
    inputs = torch.randn(5, 24)
    with torch.inference_mode():
        expected = torch.cat([layer(inputs) for layer in layers], dim=1)
        torch.testing.assert_close(joined(*layers)(inputs), expected)
