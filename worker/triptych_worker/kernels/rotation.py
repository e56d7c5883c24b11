"""Heads turned by their positions, in place: each number is read and written once.

The halves of a head are the two coordinates of points that are turned by one angle each. In float32
whatever the type, and rounded once.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import torch

from triptych_worker.kernels import rows
from triptych_worker.kernels.machine import LANES, Code, Processor, Text, processor
from triptych_worker.kernels.vectors import KINDS, serves

_ARGUMENTS: Final = ("@data", "@cosine", "@sine", "rows", "stride", "heads")


def turns(dtype: torch.dtype, size: int, target: Processor | None = None) -> bool:
    """Whether there is code for heads of ``size`` on ``target``; None is this machine."""
    return serves(dtype, target) and size > 0 and size % 2 == 0


def turn(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    """Turns ``heads`` in place.

    Args:
        heads: [T, n, D], each row's heads one after another.
        cosine: [T, D] of float32, contiguous; its halves are equal, so the first is read.
        sine: likewise.

    Raises:
        ValueError: shapes or types do not fit.
    """
    _check(heads, cosine, sine)
    count, number, size = heads.shape
    _code(heads.dtype, size)(
        heads.data_ptr(),
        cosine.data_ptr(),
        sine.data_ptr(),
        count,
        heads.stride(0),
        number,
        alone=heads.numel() < rows.FEW,
    )


def prepare(dtype: torch.dtype, size: int) -> None:
    """Compiles now rather than within the first answer, if there is code for such heads."""
    if turns(dtype, size):
        _code(dtype, size)


def _check(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    shape = tuple(heads.shape)
    if len(shape) != 3 or not heads.is_cpu or not turns(heads.dtype, shape[-1]):
        raise ValueError(f"{shape} of {heads.dtype} on {heads.device} is not served")
    count, number, size = shape
    for name, angle in (("cosine", cosine), ("sine", sine)):
        if angle.shape != (count, size) or not angle.is_contiguous():
            raise ValueError(f"{name} {tuple(angle.shape)} must be {(count, size)}, contiguous")
        if angle.dtype is not torch.float32 or not angle.is_cpu:
            raise ValueError(f"{name} must be float32 on the CPU, not {angle.dtype}")
    row, head, one = heads.stride()
    if one != 1 or (number > 1 and head != size):
        raise ValueError("the heads of a row must lie next to each other, and so their numbers")
    if count > 1 and row < number * size:
        raise ValueError("rows overlap: some heads would be turned twice")


@cache
def _code(dtype: torch.dtype, size: int) -> Code:
    return Code(program(dtype, size), processor())


def program(dtype: torch.dtype, size: int) -> str:
    """For heads of ``size``, in LLVM's language."""
    element, half = KINDS[dtype].element, size // 2
    # Beyond the last full 16 of a half the other one begins: the rest of it is masked.
    parts = [
        (start, None if half - start >= LANES else rows.first(half - start))
        for start in range(0, half, LANES)
    ]
    text = Text()
    text.add(
        rows.MASKED,
        "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)",
        "define void @entry(ptr %arguments, i64 %rank, i64 %size) {",
        "start:",
    )
    text.arguments(_ARGUMENTS)
    text.share("%rows")
    text.add(f"  %whole = mul i64 %heads, {size}")
    with text.loop("row", "%from", "%to") as row:
        angle = text.value(f"mul i64 {row}, {size}")
        cosines, sines = (
            [rows.load(text, "float", text.at(place, "float", str(n)), mask) for n, mask in parts]
            for place in [text.at(name, "float", angle) for name in ("%cosine", "%sine")]
        )
        place = text.at("%data", element, text.value(f"mul i64 {row}, %stride"))
        with text.loop("head", "0", "%whole", step=size) as head:
            one = text.at(place, element, head)
            for (start, mask), cosine, sine in zip(parts, cosines, sines, strict=True):
                _turn(text, element, (one, start, half), (cosine, sine), mask)
    text.add("  ret void", "}")
    return str(text)


def _turn(
    text: Text,
    element: str,
    at: tuple[str, int, int],
    angle: tuple[str, str],
    mask: str | None,
) -> None:
    """Up to 16 points of the head ``at[0]``, from its number ``at[1]`` on; the second coordinates
    lie ``at[2]`` behind the first ones."""
    head, start, half = at
    cosine, sine = angle
    places = [text.at(head, element, str(start + shift)) for shift in (0, half)]
    first, second = (rows.load(text, element, place, mask) for place in places)
    minus = text.value(f"fneg <16 x float> {sine}")
    turned = []
    for one, other, signed in ((first, second, minus), (second, first, sine)):
        product = text.value(f"fmul <16 x float> {one}, {cosine}")
        turned.append(
            text.value(
                f"call <16 x float> @llvm.fma.v16f32(<16 x float> {other},"
                f" <16 x float> {signed}, <16 x float> {product})"
            )
        )
    for number, place in zip(turned, places, strict=True):
        rows.store(text, element, number, place, mask)
