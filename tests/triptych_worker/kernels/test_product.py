import pytest
import torch
from torch.nn.functional import linear, silu
from triptych_worker.kernels.machine import Processor, processor
from triptych_worker.kernels.product import After, Weight, multiplies

pytestmark = pytest.mark.torch

OTHERS = Processor("haswell", "+avx,+avx2,+fma,+f16c,+sse4.2")
OLD = Processor("core2", "+sse3")
WIDEST = [one for one in (torch.float32, torch.bfloat16) if multiplies(one)]
SIZES = [(16, 8), (48, 64), (33, 25), (5, 3), (1, 1), (40, 24)]  # even and uneven, in and out


def drawn(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", WIDEST)
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_it_is_the_product_with_what_follows_for_any_number_of_rows(
    outputs: int, inputs: int, dtype: torch.dtype, threads: int, torch_threads: None
) -> None:
    torch.set_num_threads(threads)
    weight, bias = drawn(outputs, inputs, seed=1, dtype=dtype), drawn(outputs, seed=2, dtype=dtype)
    made = [Weight(weight), Weight(weight, bias)]
    for count in (0, 1, 2, 3, 5, 7, 8, 9, 16, 31):
        rows = drawn(count, inputs, seed=count, dtype=dtype)
        other = drawn(count, outputs, seed=count + 100, dtype=dtype)
        for one, added in zip(made, (None, bias.float()), strict=True):
            product = linear(rows.float(), weight.float(), added)
            wanted = {
                After.NOTHING: product,
                After.SILU: silu(product),
                After.TIMES: product * other.float(),
                After.PLUS: product + other.float(),
            }
            for after, exact in wanted.items():
                operand = other if after in {After.TIMES, After.PLUS} else None
                close(one.times(rows, after, operand), exact)


@pytest.mark.parametrize("dtype", WIDEST)
def test_more_rows_than_a_cache_holds_meet_the_weight_in_parts(dtype: torch.dtype) -> None:
    inputs = 2048 if dtype is torch.bfloat16 else 1024  # 128 rows are half a MiB
    weight, rows = (drawn(n, inputs, seed=n, dtype=dtype) / 32 for n in (24, 300))
    other = drawn(300, 24, seed=3, dtype=dtype)
    made = Weight(weight).times(rows, After.PLUS, other)
    close(made, linear(rows.float(), weight.float()) + other.float())


@pytest.mark.skipif(not multiplies(torch.float32, processor()), reason="no AVX on this processor")
def test_a_processor_with_shorter_registers_gets_code_of_its_own() -> None:
    weight, rows = (drawn(*shape, seed=1, dtype=torch.float32) for shape in ((33, 25), (7, 25)))
    made = Weight(weight, target=OTHERS)
    close(made.times(rows), linear(rows, weight))
    close(made.times(rows[:4]), linear(rows[:4], weight))


def test_a_row_is_the_same_beside_any_others_of_its_eight() -> None:
    weight = Weight(drawn(64, 200, seed=1, dtype=torch.float32))
    rows = drawn(24, 200, seed=2, dtype=torch.float32)
    whole = weight.times(rows)
    assert torch.equal(whole[8:16], weight.times(rows[8:16]))


def test_sums_of_many_numbers_are_as_exact_as_float32_is() -> None:
    weight, rows = (drawn(n, 4096, seed=n, dtype=torch.float32) for n in (64, 8))
    exact = rows.double() @ weight.double().T
    error = (Weight(weight).times(rows).double() - exact).square().mean().sqrt()
    assert error < 2e-6 * exact.square().mean().sqrt()


def test_rows_that_are_a_part_of_another_tensor_are_read_where_they_are() -> None:
    weight = drawn(16, 8, seed=1, dtype=torch.float32)
    wide = drawn(3, 20, seed=2, dtype=torch.float32)
    close(Weight(weight).times(wide[:, 4:12]), linear(wide[:, 4:12], weight))


def test_an_infinite_number_stays_one() -> None:
    weight = Weight(torch.ones(16, 4))
    rows = torch.tensor([[float("inf"), 0, 0, 0], [float("nan"), 0, 0, 0], [1, 2, 3, 4]])
    assert weight.times(rows)[:, 0].isfinite().tolist() == [False, False, True]


def test_what_does_not_fit_is_refused_before_memory_is_touched() -> None:
    weight = Weight(torch.ones(16, 4))
    with pytest.raises(ValueError, match="do not fit 4"):
        weight.times(torch.ones(2, 5))
    with pytest.raises(ValueError, match="do not fit 4"):
        weight.times(torch.ones(2, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="another operand"):
        weight.times(torch.ones(2, 4), After.PLUS)
    with pytest.raises(ValueError, match="another operand"):
        weight.times(torch.ones(2, 4), After.SILU, torch.ones(2, 16))
    with pytest.raises(ValueError, match="not the product's shape"):
        weight.times(torch.ones(2, 4), After.TIMES, torch.ones(1, 16))
    with pytest.raises(ValueError, match="is not the weight's"):
        Weight(torch.ones(16, 4), torch.ones(15))
    with pytest.raises(ValueError, match="is not the weight's"):
        Weight(torch.ones(16, 4), torch.ones(16).bfloat16())
    with pytest.raises(ValueError, match=r"no products of torch\.float16"):
        Weight(torch.ones(16, 4, dtype=torch.float16))


def test_processors_without_the_instructions_are_left_to_pytorch() -> None:
    assert multiplies(torch.float32, OTHERS)
    assert not multiplies(torch.bfloat16, OTHERS)
    assert not multiplies(torch.float32, OLD)
    assert not multiplies(torch.float16)


def close(made: torch.Tensor, exact: torch.Tensor) -> None:
    """To within one rounding to the type that was made, and sums of another order."""
    step = 2.0**-7 if made.dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(made.float(), exact, rtol=step, atol=step / 4)
