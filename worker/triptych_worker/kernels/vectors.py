"""What the kernels share: 16 numbers of float32 at a time, in LLVM's language."""

from __future__ import annotations

import struct
from math import factorial, log
from typing import Final

# Of the series of 2^x between -1/2 and 1/2: the first that is left out is 2e-7 of the sum.
_TERMS: Final = 7
# exp of less is no normal float32.
_LEAST: Final = -87.0
_EXPONENT_BITS: Final = (127, 23)  # what stands for 2^0, and how far to the left


def constant(value: float) -> str:
    """16 times ``value``, rounded to float32: LLVM wants the bits of that as a double."""
    [rounded] = struct.unpack("<f", struct.pack("<f", value))
    [bits] = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"splat (float 0x{bits:016X})"


def widened(element: str, name: str) -> str:
    """The instruction that makes <16 x float> of 16 ``element``."""
    if element == "float":
        return f"bitcast <16 x float> {name} to <16 x float>"
    return f"fpext <16 x {element}> {name} to <16 x float>"


def narrowed(element: str, name: str) -> str:
    """The instruction that rounds <16 x float> to 16 ``element``."""
    if element == "float":
        return f"bitcast <16 x float> {name} to <16 x float>"
    return f"fptrunc <16 x float> {name} to <16 x {element}>"


def _exponential() -> str:
    """e^x as 2^n 2^r: n goes into the exponent's bits, 2^r is a short series. NaN stays NaN: an
    answer that is wrong must be seen to be."""
    lines = ["  %p0 = fadd <16 x float> zeroinitializer, " + constant(_term(_TERMS - 1))]
    for step, term in enumerate(range(_TERMS - 2, -1, -1)):
        lines.append(
            f"  %p{step + 1} = call <16 x float> @llvm.fma.v16f32(<16 x float> %p{step},"
            f" <16 x float> %r, <16 x float> {constant(_term(term))})"
        )
    zero, shift = _EXPONENT_BITS
    series = "\n".join(lines)
    least, most = constant(_LEAST), constant(-_LEAST)
    return f"""
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.maxnum.v16f32(<16 x float>, <16 x float>)
declare <16 x float> @llvm.maximum.v16f32(<16 x float>, <16 x float>)
declare <16 x float> @llvm.minimum.v16f32(<16 x float>, <16 x float>)
declare <16 x i32> @llvm.fptosi.sat.v16i32.v16f32(<16 x float>)
declare <16 x float> @llvm.roundeven.v16f32(<16 x float>)
define internal <16 x float> @exponential(<16 x float> %x) alwaysinline {{
  %above = call <16 x float> @llvm.maximum.v16f32(<16 x float> %x, <16 x float> {least})
  %bounded = call <16 x float> @llvm.minimum.v16f32(<16 x float> %above, <16 x float> {most})
  %scaled = fmul <16 x float> %bounded, {constant(1 / log(2))}
  %n = call <16 x float> @llvm.roundeven.v16f32(<16 x float> %scaled)
  %r = fsub <16 x float> %scaled, %n
{series}
  %whole = call <16 x i32> @llvm.fptosi.sat.v16i32.v16f32(<16 x float> %n)
  %biased = add <16 x i32> %whole, splat (i32 {zero})
  %bits = shl <16 x i32> %biased, splat (i32 {shift})
  %power = bitcast <16 x i32> %bits to <16 x float>
  %result = fmul <16 x float> %p{_TERMS - 1}, %power
  ret <16 x float> %result
}}
"""


def _term(power: int) -> float:
    return log(2) ** power / factorial(power)


EXPONENTIAL: Final = _exponential()
