import struct

import pytest
import torch
from triptych_worker.kernels.machine import Code, Processor, processor
from triptych_worker.kernels.norm import normalised, normalises, prepare, program

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not normalises(torch.float32), reason="a processor without AVX-512"),
]

SERVED = [one for one in (torch.float32, torch.bfloat16) if normalises(one)]
WIDTHS = [1, 5, 16, 17, 48, 63, 64, 65, 130, 512, 768]
EPSILON = 1e-5
GUARD = 77.0


def drawn(*shape: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exactly(data: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """With the roundings to the type that there are to be, and no others."""
    exact = data.double()
    scale = (exact.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    return ((exact * scale).to(data.dtype).double() * weight.double()).to(data.dtype)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_normalised_and_nothing_beside_them_is_read_or_written(
    width: int, dtype: torch.dtype, threads: int, torch_threads: None
) -> None:
    torch.set_num_threads(threads)
    code = Code(program(dtype), processor())
    [bits] = struct.unpack("<i", struct.pack("<f", EPSILON))
    for count in (0, 1, 2, 7):
        read = torch.full(((count + 2) * width + 64,), float("nan"), dtype=dtype)
        data = read[width : width * (count + 1)].view(count, width)
        data.copy_(drawn(count, width, dtype=dtype))
        weight = torch.full((width + 64,), float("nan"), dtype=dtype)
        weight[:width] = drawn(width, dtype=dtype, seed=2)
        written = torch.full(read.shape, GUARD, dtype=dtype)
        out = written[width : width * (count + 1)].view(count, width)
        code(data.data_ptr(), weight.data_ptr(), out.data_ptr(), count, width, bits)
        close(out, exactly(data, weight[:width]))
        assert (written[:width] == GUARD).all()
        assert (written[width * (count + 1) :] == GUARD).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize("shape", [(0, 48), (1, 768), (8, 768), (301, 130), (20, 30, 64)])
def test_any_number_of_rows_by_any_number_of_threads(
    shape: tuple[int, ...], dtype: torch.dtype, threads: int, torch_threads: None
) -> None:
    torch.set_num_threads(threads)
    data, weight = drawn(*shape, dtype=dtype), drawn(shape[-1], dtype=dtype, seed=2)
    before = data.clone()
    close(normalised(data, weight, EPSILON), exactly(data, weight))
    assert torch.equal(data, before)


@pytest.mark.skipif(torch.bfloat16 not in SERVED, reason="a processor without AVX512-BF16")
def test_the_type_is_rounded_to_before_the_weight_and_after_it() -> None:
    data, weight = drawn(200, 96, dtype=torch.bfloat16), drawn(96, dtype=torch.bfloat16, seed=2)
    made, wanted = normalised(data, weight, EPSILON), exactly(data, weight)
    once = data.double() * (data.double().square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    once = (once * weight.double()).bfloat16()
    # Where a product lies between two numbers of the type, float32 may fall to the other side.
    assert (made != wanted).float().mean() < 1e-3
    assert (made != once).float().mean() > 0.1


def test_numbers_from_small_to_large_are_scaled_alike() -> None:
    data = drawn(1, 48, dtype=torch.float32)
    for factor in (1e-12, 1e-3, 1e6, 1e15):
        made = normalised(data * factor, torch.ones(48), 0.0)
        torch.testing.assert_close(made, normalised(data, torch.ones(48), 0.0))
    zeros = normalised(torch.zeros(1, 48), torch.ones(48), EPSILON)
    assert torch.equal(zeros, torch.zeros(1, 48))


@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [3, 70])  # among the first, and among the last few
def test_what_is_not_a_number_stays_so(broken: float, dtype: torch.dtype, place: int) -> None:
    data, weight = torch.ones(3, 72, dtype=dtype), torch.ones(72, dtype=dtype)
    data[1, place] = broken
    made = normalised(data, weight, EPSILON)
    assert made[1, place].isnan()
    assert made[[0, 2]].isfinite().all()
    weight[place] = broken
    assert not normalised(torch.ones(1, 72, dtype=dtype), weight, EPSILON)[0, place].isfinite()


def test_what_does_not_fit_is_refused_before_memory_is_touched() -> None:
    data, weight = torch.ones(3, 16), torch.ones(16)
    for wrong in (data.half(), data.sum(), data.to("meta")):
        with pytest.raises(ValueError, match="is not served"):
            normalised(wrong, weight, EPSILON)
    for wrong in (weight[:15], weight.bfloat16(), weight[None], torch.ones(1)):
        with pytest.raises(ValueError, match="does not fit"):
            normalised(data, wrong, EPSILON)
    with pytest.raises(ValueError, match="contiguous"):
        normalised(torch.ones(16, 3).t(), weight, EPSILON)
    with pytest.raises(ValueError, match="contiguous"):
        normalised(data, torch.ones(32)[::2], EPSILON)


def test_what_there_is_no_code_for_is_left_to_pytorch() -> None:
    assert not normalises(torch.float16)
    assert not normalises(torch.float32, Processor("haswell", "+avx2,+fma"))
    older = Processor("skylake-avx512", "+avx2,+avx512f")
    assert normalises(torch.float32, older)
    assert not normalises(torch.bfloat16, older)  # it cannot round to that type
    prepare(torch.float16)  # nothing, rather than an error


def close(made: torch.Tensor, exact: torch.Tensor) -> None:
    """To within two roundings of bfloat16, of which one may go the other way, or of float32."""
    step = 2.0**-7 if made.dtype is torch.bfloat16 else 1e-6
    torch.testing.assert_close(made, exact, rtol=step, atol=1e-6)
