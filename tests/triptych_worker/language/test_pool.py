import pytest
import torch
from triptych_contract.errors import InvalidRequest
from triptych_worker.language.layout import KvLayout
from triptych_worker.language.pool import KvPool

pytestmark = pytest.mark.torch

LAYOUT = KvLayout(layers=3, kv_heads=2, head_dim=4, dtype=torch.float32)


def test_what_is_written_at_a_range_is_seen_there_and_nowhere_else() -> None:
    pool = KvPool(LAYOUT, 10, torch.device("cpu"))
    kv = torch.rand(LAYOUT.shape(4))
    pool.write(3, kv)
    assert torch.equal(pool.view(3, 4), kv)
    assert not pool.view(0, 3).any()
    assert not pool.view(7, 3).any()


@pytest.mark.parametrize(
    "kv",
    [
        torch.zeros(3, 2, 4, 2),
        torch.zeros(2, 2, 4, 2, 4),
        torch.zeros(3, 2, 4, 1, 4),
        torch.zeros(3, 2, 4, 2, 4, dtype=torch.bfloat16),
    ],
    ids=["dimensions", "layers", "heads", "dtype"],
)
def test_another_layout_is_refused(kv: torch.Tensor) -> None:
    with pytest.raises(InvalidRequest, match="do not fit the layout"):
        KvPool(LAYOUT, 10, torch.device("cpu")).write(0, kv)


def test_a_layout_says_its_size_and_all_that_must_agree() -> None:
    assert LAYOUT.bytes_per_token == 3 * 2 * 2 * 4 * 4
    assert LAYOUT.describe() == "layers=3,kv=2,tokens=*,kv_heads=2,head_dim=4,dtype=float32"
