import ctypes

import pytest
import torch
from triptych_worker.kernels.machine import Code, Processor, Text, processor

pytestmark = pytest.mark.torch


def ranks() -> Code:
    """Every thread of a team puts its size where its rank is."""
    text = Text()
    text.add("define void @entry(ptr %arguments, i64 %rank, i64 %size) {")
    text.arguments(("@out", "factor"))
    place = text.at("%out", "i64", "%rank")
    product = text.value("mul i64 %size, %factor")
    text.add(f"  store i64 {product}, ptr {place}", "  ret void", "}")
    return Code(str(text), processor())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_as_many_threads_share_as_in_pytorchs_operations(threads: int, torch_threads: None) -> None:
    code, out = ranks(), (ctypes.c_int64 * 4)()
    torch.set_num_threads(threads)
    code(ctypes.addressof(out), 10)
    assert list(out) == [10 * threads] * threads + [0] * (4 - threads)


def test_code_that_is_run_alone_wakes_no_other_thread(torch_threads: None) -> None:
    code, out = ranks(), (ctypes.c_int64 * 4)()
    torch.set_num_threads(2)
    code(ctypes.addressof(out), 10, alone=True)
    assert list(out) == [10, 0, 0, 0]


def test_text_that_is_not_llvms_is_refused() -> None:
    with pytest.raises(RuntimeError, match="parsing error"):
        Code("define nothing", processor())


def test_a_processor_has_what_its_features_say() -> None:
    known = Processor("some", "+avx2,-avx512f,+avx512f16")
    assert known.has("avx2")
    assert not known.has("avx512f")
    assert not known.has("avx")
