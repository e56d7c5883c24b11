import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from triptych_worker.kernels.attention import Places, Shape, attend, attends
from triptych_worker.kernels.machine import Processor

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not attends(torch.float32, 16), reason="a processor without AVX-512"),
]

SERVED = [one for one in (torch.float32, torch.bfloat16) if attends(one, 16)]
STARTS, LENGTHS = [0, 10, 100, 300, 420], [1, 16, 17, 111, 180]
HEADS = [(12, 4, 64), (6, 2, 16), (28, 4, 128), (8, 8, 32), (5, 1, 48), (16, 8, 128)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", SERVED)
@pytest.mark.parametrize(("heads", "kv_heads", "size"), HEADS)
def test_each_token_sees_its_own_range_and_nothing_else(
    *, heads: int, kv_heads: int, size: int, dtype: torch.dtype, threads: int, torch_threads: None
) -> None:
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(size)
    pool = torch.randn(3, 2, kv_heads, 600, size, generator=generator).to(dtype)
    kv = torch.full_like(pool, float("nan"))  # whoever reads beyond a range shows it
    for start, length in zip(STARTS, LENGTHS, strict=True):
        kv[:, :, :, start : start + length] = pool[:, :, :, start : start + length]
    rows = torch.randn(len(STARTS), heads + 2 * kv_heads, size, generator=generator).to(dtype)
    query = rows[:, :heads]
    made = attend(query, kv[1], Places(STARTS, LENGTHS), size**-0.5)
    step = 2.0**-8 if dtype is torch.bfloat16 else 1e-6
    for token, (start, length) in enumerate(zip(STARTS, LENGTHS, strict=True)):
        keys, values = pool[1, :, :, start : start + length].float()
        one = query[token].float().view(1, heads, 1, size)
        wanted = scaled_dot_product_attention(one, keys[None], values[None], enable_gqa=True)
        torch.testing.assert_close(made[token].float(), wanted.flatten(), rtol=step, atol=step)


def test_scores_of_any_size_give_a_mean() -> None:
    kv = torch.randn(2, 1, 40, 16, generator=torch.Generator().manual_seed(1))
    kv[0, 0, 7] = 1000.0
    made = attend(torch.full((1, 1, 16), 100.0), kv, Places([0], [40]), 1.0)
    torch.testing.assert_close(made[0], kv[1, 0, 7])
    kv[0] = 3.0  # all alike
    made = attend(torch.full((1, 1, 16), -100.0), kv, Places([0], [40]), 1.0)
    torch.testing.assert_close(made[0], kv[1, 0].mean(0))


def test_what_is_not_a_number_stays_so() -> None:
    kv = torch.zeros(2, 1, 20, 16)
    kv[1, 0, 3, 0] = float("nan")
    assert attend(torch.ones(1, 1, 16), kv, Places([0], [20]), 1.0)[0].isnan().tolist() == [
        True,
        *[False] * 15,
    ]
    kv[1, 0, 3, 0] = 0
    for broken in (float("nan"), float("inf")):
        kv[0, 0, 3, 0] = broken
        assert attend(torch.ones(1, 1, 16), kv, Places([0], [20]), 1.0).isnan().all()


def test_a_processor_that_cannot_round_to_bfloat16_gets_no_code_for_it() -> None:
    older = Processor("skylake-avx512", "+avx2,+avx512f")
    assert attends(torch.float32, 64, older)
    assert not attends(torch.bfloat16, 64, older)


def test_heads_that_share_keys_are_taken_together_as_far_as_registers_go() -> None:
    groups = {Shape(torch.float32, *heads).group for heads in [(12, 4, 64), (9, 3, 64)]}
    assert groups == {3}
    assert Shape(torch.float32, 28, 4, 128).group == 1
    assert Shape(torch.float32, 32, 4, 128).group == 2
    assert Shape(torch.float32, 16, 2, 64).group == 4


def test_what_does_not_fit_is_refused_before_memory_is_touched() -> None:
    kv, places = torch.zeros(2, 2, 20, 16), Places([0], [20])
    with pytest.raises(ValueError, match="not served"):
        attend(torch.ones(2, 4, 16), kv, places, 1.0)
    with pytest.raises(ValueError, match="not served"):
        attend(torch.ones(1, 3, 16), kv, places, 1.0)
    with pytest.raises(ValueError, match="not served"):
        attend(torch.ones(1, 4, 16).bfloat16(), kv, places, 1.0)
    with pytest.raises(ValueError, match="next to each other"):
        attend(torch.ones(1, 16, 4).transpose(1, 2), kv, places, 1.0)
    for start, length in ((1, 20), (0, 21), (-1, 4), (3, 0)):
        with pytest.raises(ValueError, match="are not in"):
            attend(torch.ones(1, 4, 16), kv, Places([start], [length]), 1.0)


def test_heads_of_uneven_size_are_left_to_pytorch() -> None:
    assert not attends(torch.float32, 24)
    assert not attends(torch.float16, 64)
