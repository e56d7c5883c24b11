"""What the kernels share: 16 numbers of float32 at a time, in LLVM's language."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import factorial, log
from typing import Final

import torch

from triptych_worker.kernels.machine import Processor, processor

# Of the series of 2^x between -1/2 and 1/2: the first that is left out is 2e-7 of the sum.
_TERMS: Final = 7
# exp of less is no normal float32.
_LEAST: Final = -87.0
_EXPONENT_BITS: Final = (127, 23)  # what stands for 2^0, and how far to the left


# Adds to 16 sums the products of 16 pairs of bfloat16 each.
PAIRS: Final = (
    "declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512"
    "(<16 x float>, <32 x bfloat>, <32 x bfloat>)"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a type is multiplied: ``inputs`` that one instruction takes, and LLVM's name of it."""

    inputs: int
    element: str

    @property
    def vector(self) -> str:
        """What an instruction takes: 16 sums' next inputs."""
        return f"<{16 * self.inputs} x {self.element}>"

    def added(self, total: str, left: str, right: str) -> str:
        """The instruction that adds products of two ``vector`` to 16 sums in float32."""
        if self.inputs == 1:
            operands = f"<16 x float> {left}, <16 x float> {right}, <16 x float> {total}"
            return f"call <16 x float> @llvm.fma.v16f32({operands})"
        operands = f"<16 x float> {total}, {self.vector} {left}, {self.vector} {right}"
        return f"call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512({operands})"


KINDS: Final = {torch.float32: Kind(1, "float"), torch.bfloat16: Kind(2, "bfloat")}


# Without the instructions that round to bfloat16 LLVM calls functions that are not there.
_FEATURES: Final = {torch.float32: "avx512f", torch.bfloat16: "avx512bf16"}


def serves(dtype: torch.dtype, target: Processor | None = None) -> bool:
    """Whether ``target`` works on 16 numbers of this type at a time; None is this machine."""
    feature = _FEATURES.get(dtype)
    return feature is not None and (target or processor()).has(feature)


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
    # Comparisons with NaN are false, so it passes both bounds. A sum of this size has no bits below
    # 1, so n stands in its last ones, with what stands for 2^0 added.
    whole = constant(1.5 * 2**shift + zero)
    return f"""
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
define internal <16 x float> @exponential(<16 x float> %x) alwaysinline {{
  %low = fcmp ogt <16 x float> {least}, %x
  %above = select <16 x i1> %low, <16 x float> {least}, <16 x float> %x
  %high = fcmp olt <16 x float> {most}, %above
  %bounded = select <16 x i1> %high, <16 x float> {most}, <16 x float> %above
  %scaled = fmul <16 x float> %bounded, {constant(1 / log(2))}
  %sum = fadd <16 x float> %scaled, {whole}
  %n = fsub <16 x float> %sum, {whole}
  %r = fsub <16 x float> %scaled, %n
{series}
  %last = bitcast <16 x float> %sum to <16 x i32>
  %bits = shl <16 x i32> %last, splat (i32 {shift})
  %power = bitcast <16 x i32> %bits to <16 x float>
  %result = fmul <16 x float> %p{_TERMS - 1}, %power
  ret <16 x float> %result
}}
"""


def _term(power: int) -> float:
    return log(2) ** power / factorial(power)


EXPONENTIAL: Final = _exponential()
