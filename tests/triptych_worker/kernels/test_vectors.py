import ctypes
import math

import pytest
from triptych_worker.kernels.machine import Code, processor
from triptych_worker.kernels.vectors import EXPONENTIAL, constant

pytestmark = pytest.mark.torch

APPLIED = (
    EXPONENTIAL
    + """
define void @entry(ptr %arguments, i64 %rank, i64 %size) {
  %first = icmp eq i64 %rank, 0
  br i1 %first, label %apply, label %end
apply:
  %from = load ptr, ptr %arguments
  %x = load <16 x float>, ptr %from, align 4
  %y = call <16 x float> @exponential(<16 x float> %x)
  store <16 x float> %y, ptr %from, align 4
  br label %end
end:
  ret void
}
"""
)


def exponential(*values: float) -> list[float]:
    numbers = (ctypes.c_float * 16)(*values)
    Code(APPLIED, processor())(ctypes.addressof(numbers))
    return list(numbers)


def test_the_exponential_is_right_to_the_last_bits() -> None:
    for start in range(-86, 72, 16):
        values = [start + 0.937 * step for step in range(16)]
        for value, made in zip(values, exponential(*values), strict=True):
            single = ctypes.c_float(value).value
            assert made == pytest.approx(math.exp(single), rel=1e-5 if abs(value) > 8 else 1e-6)
    assert exponential(0.0)[0] == 1.0


def test_what_is_not_a_number_stays_so() -> None:
    assert [math.isnan(one) for one in exponential(math.nan, 1.0)[:2]] == [True, False]


def test_it_ends_where_float32_ends() -> None:
    least, most, *_ = exponential(-1e30, 1e30)
    assert least < 1e-37
    assert most > 1e37


def test_constants_are_rounded_to_float32() -> None:
    assert constant(1.0) == "splat (float 0x3FF0000000000000)"
    assert constant(0.1) == "splat (float 0x3FB99999A0000000)"
