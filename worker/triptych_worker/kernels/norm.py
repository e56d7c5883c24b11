"""Root-mean-square normalisation of rows, in one call that reads each row from memory once."""

from __future__ import annotations

import struct
from functools import cache
from math import prod
from typing import Final

import torch

from triptych_worker.kernels import rows
from triptych_worker.kernels.machine import LANES, Code, Processor, Text, processor
from triptych_worker.kernels.vectors import KINDS, narrowed, serves, widened

_STRANDS: Final = 4  # sums under way at a time: one alone would wait for itself
_ARGUMENTS: Final = ("@data", "@weight", "@out", "rows", "width", "epsilon")


def normalises(dtype: torch.dtype, target: Processor | None = None) -> bool:
    """Whether there is code for rows of this type on ``target``; None is this machine."""
    return serves(dtype, target)


def normalised(data: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """[..., width] to [..., width]: x / sqrt(mean(x^2) + epsilon) in float32, rounded to the type,
    then times ``weight`` and rounded again, as transformers' modules do.

    Args:
        data: contiguous.
        weight: [width] of the same type, contiguous.
        epsilon: what keeps rows of zeros from a division by zero.

    Raises:
        ValueError: shapes or types do not fit.
    """
    _check(data, weight)
    out = torch.empty_like(data)
    *leading, width = data.shape
    count = prod(leading)
    _code(data.dtype)(
        data.data_ptr(),
        weight.data_ptr(),
        out.data_ptr(),
        count,
        width,
        int.from_bytes(struct.pack("<f", epsilon), "little"),
        alone=count * width < rows.FEW,
    )
    return out


def prepare(dtype: torch.dtype) -> None:
    """Compiles now rather than within the first answer, if there is code for this type."""
    if normalises(dtype):
        _code(dtype)


def _check(data: torch.Tensor, weight: torch.Tensor) -> None:
    shape = data.shape
    if not shape or not data.is_cpu or not normalises(data.dtype):
        raise ValueError(f"{tuple(shape)} of {data.dtype} on {data.device} is not served")
    if weight.shape != shape[-1:] or weight.dtype is not data.dtype or not weight.is_cpu:
        raise ValueError(
            f"a weight {tuple(weight.shape)} of {weight.dtype} does not fit {tuple(shape)}"
        )
    if not (data.is_contiguous() and weight.is_contiguous()):
        raise ValueError("rows and weight must be contiguous")


@cache
def _code(dtype: torch.dtype) -> Code:
    return Code(program(dtype), processor())


def program(dtype: torch.dtype) -> str:
    """For rows of any width, in LLVM's language."""
    element = KINDS[dtype].element
    text = Text()
    text.add(
        rows.MASKED,
        "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)",
        "declare float @llvm.vector.reduce.fadd.v16f32(float, <16 x float>)",
        "declare float @llvm.sqrt.f32(float)",
        "define void @entry(ptr %arguments, i64 %rank, i64 %size) {",
        "start:",
    )
    text.arguments(_ARGUMENTS)
    text.share("%rows")
    lanes = ", ".join(f"i32 {lane}" for lane in range(LANES))
    text.add(
        "  %epsilon32 = trunc i64 %epsilon to i32",
        "  %least = bitcast i32 %epsilon32 to float",
        "  %count = sitofp i64 %width to float",
        f"  %long = and i64 %width, -{LANES * _STRANDS}",
        f"  %whole = and i64 %width, -{LANES}",
        "  %left = sub i64 %width, %whole",
        "  %left32 = trunc i64 %left to i32",
        "  %left1 = insertelement <16 x i32> poison, i32 %left32, i32 0",
        "  %lefts = shufflevector <16 x i32> %left1, <16 x i32> poison, <16 x i32> zeroinitializer",
        f"  %mask = icmp slt <16 x i32> <{lanes}>, %lefts",
    )
    with text.loop("row", "%from", "%to") as row:
        offset = text.value(f"mul i64 {row}, %width")
        source, target = (text.at(name, element, offset) for name in ("%data", "%out"))
        scale = _scale(text, element, source)
        with text.loop("write", "0", "%whole", LANES) as index:
            _write(text, element, (source, target, index), scale)
        _write(text, element, (source, target, "%whole"), scale, "%mask")
    text.add("  ret void", "}")
    return str(text)


def _scale(text: Text, element: str, row: str) -> str:
    """16 times what the numbers of a row are multiplied by."""
    sums = [f"%sum{strand}" for strand in range(_STRANDS)]
    zeros = dict.fromkeys(sums, "zeroinitializer")
    with text.loop("strands", "0", "%long", LANES * _STRANDS, zeros) as index:
        for strand, total in enumerate(sums):
            place = text.at(row, element, text.value(f"add i64 {index}, {strand * LANES}"))
            text.add(f"  {total}n = {_squared(rows.load(text, element, place), total)}")
    together = sums[0]
    for total in sums[1:]:
        together = text.value(f"fadd <16 x float> {together}, {total}")
    with text.loop("single", "%long", "%whole", LANES, {"%rest": together}) as index:
        number = rows.load(text, element, text.at(row, element, index))
        text.add(f"  %restn = {_squared(number, '%rest')}")
    number = rows.load(text, element, text.at(row, element, "%whole"), "%mask")
    total = text.value(_squared(number, "%rest"))
    squares = text.value(
        f"call reassoc float @llvm.vector.reduce.fadd.v16f32(float 0.0, <16 x float> {total})"
    )
    mean = text.value(f"fdiv float {squares}, %count")
    root = text.value(
        f"call float @llvm.sqrt.f32(float {text.value(f'fadd float {mean}, %least')})"
    )
    one = text.value(f"fdiv float 1.0, {root}")
    return text.spread(one)


def _squared(number: str, total: str) -> str:
    """The instruction that adds squares to sums."""
    operands = f"<16 x float> {number}, <16 x float> {number}, <16 x float> {total}"
    return f"call <16 x float> @llvm.fma.v16f32({operands})"


def _write(
    text: Text, element: str, at: tuple[str, str, str], scale: str, mask: str | None = None
) -> None:
    """Numbers of the row ``at[0]``, scaled and weighed, to the row ``at[1]``, both from ``at[2]``
    on."""
    source, target, index = at
    number = rows.load(text, element, text.at(source, element, index), mask)
    weight = rows.load(text, element, text.at("%weight", element, index), mask)
    scaled = text.value(f"fmul <16 x float> {number}, {scale}")
    rounded = text.value(widened(element, text.value(narrowed(element, scaled))))
    weighed = text.value(f"fmul <16 x float> {rounded}, {weight}")
    rows.store(text, element, weighed, text.at(target, element, index), mask)
