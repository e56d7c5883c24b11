import pytest
import torch
from triptych_worker.kernels import rows
from triptych_worker.kernels.machine import Processor
from triptych_worker.kernels.rotation import prepare, turn, turns

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not turns(torch.float32, 16), reason="a processor without AVX-512"),
]

SERVED = [one for one in (torch.float32, torch.bfloat16) if turns(one, 16)]
SIZES = [2, 6, 8, 16, 32, 34, 64, 72, 80, 96, 128]  # halves of whole sixteens, and others
GUARD = 77.0


def angles(count: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine [count, size]."""
    half = 6 * torch.rand(count, size // 2, generator=torch.Generator().manual_seed(size))
    whole = torch.cat((half, half), -1)
    return whole.cos(), whole.sin()


def exactly(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = heads.double().chunk(2, -1)
    swapped = torch.cat((-second, first), -1)
    return heads.double() * cosine.double()[:, None] + swapped * sine.double()[:, None]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize("size", SIZES)
def test_heads_are_turned_and_nothing_beside_them(
    *,
    size: int,
    dtype: torch.dtype,
    threads: int,
    torch_threads: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(threads)
    monkeypatch.setattr(rows, "FEW", 0)  # so that threads share even these
    generator = torch.Generator().manual_seed(size)
    for count, number in ((0, 2), (1, 1), (2, 3), (5, 0), (7, 4)):
        whole = torch.full((count + 2, number + 2, size), GUARD, dtype=dtype)
        heads = whole[1:-1, 1:-1]
        heads.copy_(torch.randn(heads.shape, generator=generator))
        cosine, sine = angles(count, size)
        wanted = torch.full(whole.shape, GUARD, dtype=torch.float64)
        wanted[1:-1, 1:-1] = exactly(heads, cosine, sine)
        turn(heads, cosine, sine)
        step = 2.0**-8 if dtype is torch.bfloat16 else 1e-6
        torch.testing.assert_close(whole.double(), wanted, rtol=step, atol=1e-6)


@pytest.mark.skipif(torch.bfloat16 not in SERVED, reason="a processor without AVX512-BF16")
def test_only_the_rounding_to_the_type_is_lost() -> None:
    heads = torch.randn(50, 4, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    cosine, sine = angles(50, 64)
    wanted = exactly(heads, cosine, sine).bfloat16()
    turn(heads, cosine, sine)
    # Where a sum lies between two numbers of the type, float32 may fall to the other side.
    assert (heads != wanted).float().mean() < 1e-3


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_of_queries_and_keys_beside_values(threads: int, torch_threads: None) -> None:
    torch.set_num_threads(threads)
    qkv = torch.randn(300, 3, 4, 72, generator=torch.Generator().manual_seed(1))
    heads, values = qkv[:, :2].view(300, 8, 72), qkv[:, 2].clone()
    assert heads.numel() > rows.FEW
    cosine, sine = angles(300, 72)
    wanted = exactly(heads, cosine, sine)
    turn(heads, cosine, sine)
    torch.testing.assert_close(heads.double(), wanted, rtol=1e-6, atol=1e-6)
    assert torch.equal(qkv[:, 2], values)


@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_a_number_stays_so(broken: float, dtype: torch.dtype) -> None:
    heads = torch.zeros(2, 2, 40, dtype=dtype)
    heads[1, 0, 38] = broken  # in the last few of the second half
    turn(heads, *angles(2, 40))
    seen = heads.isfinite().logical_not().nonzero().tolist()
    assert seen == [[1, 0, 18], [1, 0, 38]]
    heads = torch.ones(2, 1, 40, dtype=dtype)
    cosine, sine = angles(2, 40)
    sine[0, 3] = sine[0, 23] = broken
    turn(heads, cosine, sine)
    assert heads.isfinite().logical_not().nonzero().tolist() == [[0, 0, 3], [0, 0, 23]]


def test_what_does_not_fit_is_refused_before_memory_is_touched() -> None:
    heads, (cosine, sine) = torch.ones(3, 2, 16), angles(3, 16)
    for wrong in (torch.ones(3, 32), torch.ones(3, 2, 15), torch.ones(3, 2, 16).half()):
        with pytest.raises(ValueError, match="is not served"):
            turn(wrong, cosine, sine)
    for wrong in (cosine[:2], cosine[:, :8], cosine.t().contiguous().t(), cosine[:, None]):
        with pytest.raises(ValueError, match=r"cosine .* must be \(3, 16\), contiguous"):
            turn(heads, wrong, sine)
        with pytest.raises(ValueError, match=r"sine .* must be \(3, 16\), contiguous"):
            turn(heads, cosine, wrong)
    with pytest.raises(ValueError, match="sine must be float32"):
        turn(heads, cosine, sine.bfloat16())
    for apart in (torch.ones(3, 4, 16)[:, ::2], torch.ones(3, 2, 32)[:, :, ::2]):
        with pytest.raises(ValueError, match="next to each other"):
            turn(apart, cosine, sine)
    with pytest.raises(ValueError, match="rows overlap"):
        turn(torch.ones(1, 2, 16).expand(3, 2, 16), cosine, sine)
    assert torch.equal(heads, torch.ones(3, 2, 16))


def test_what_there_is_no_code_for_is_left_to_pytorch() -> None:
    assert not turns(torch.float32, 15)
    assert not turns(torch.float32, 0)
    assert not turns(torch.float16, 16)
    assert not turns(torch.float32, 16, Processor("haswell", "+avx2,+fma"))
    older = Processor("skylake-avx512", "+avx2,+avx512f")
    assert turns(torch.float32, 16, older)
    assert not turns(torch.bfloat16, 16, older)  # it cannot round to that type
    prepare(torch.float16, 16)  # nothing, rather than an error
