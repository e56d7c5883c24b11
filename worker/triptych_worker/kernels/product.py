"""Rows times a weight, with what follows the product done before it is written.

The weight is laid out in blocks of 16 outputs, input by input (of bfloat16 two inputs at a time),
so that a product reads it from one end to the other once. A block meets eight rows at a time: their
sums stay in registers, and each number of a row is spread over a register as it is read. With few
rows this goes as fast as memory gives the weight, with many as fast as the processor multiplies.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Final

import torch
from torch.nn.functional import pad

from triptych_worker.kernels.machine import LANES, Code, Processor, Text, processor
from triptych_worker.kernels.vectors import EXPONENTIAL, KINDS, PAIRS, Kind, narrowed, widened

_BLOCK: Final = LANES * 4  # bytes of a block that belong to one step along the inputs
_AHEAD: Final = 4096  # bytes that are asked of memory before they are needed
_STRANDS: Final = 4  # sums that are under way at least
_PANEL: Final = 2**19  # bytes of rows that all blocks meet one after another: half of a usual cache
_ARGUMENTS: Final = (
    "@weight", "@rows", "@out", "@other", "@bias", "steps", "blocks", "fulls", "after",
)  # fmt: skip


class After(IntEnum):
    """What follows a product."""

    NOTHING = 0
    SILU = 1
    TIMES = 2
    PLUS = 3


def multiplies(dtype: torch.dtype, target: Processor | None = None) -> bool:
    """Whether ``target`` has the instructions for products of this type; None is this machine."""
    target = target or processor()
    if dtype is torch.bfloat16:
        return target.has("avx512bf16")
    return dtype is torch.float32 and (target.has("avx512f") or target.has("fma"))


class Weight:
    """A weight [outputs, inputs] laid out for this processor, which takes the place of it.

    Raises:
        ValueError: this processor has no instructions for its type, or the bias is another's.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        target: Processor | None = None,
    ) -> None:
        if weight.device.type != "cpu" or not multiplies(weight.dtype, target):
            raise ValueError(f"no products of {weight.dtype} on this processor")
        if bias is not None and (bias.shape, bias.dtype) != (weight.shape[:1], weight.dtype):
            raise ValueError(f"a bias {tuple(bias.shape)} of {bias.dtype} is not the weight's")
        self._kind = KINDS[weight.dtype]
        self._target = target or processor()
        self.outputs, self.inputs = weight.shape
        self._blocks = _up(self.outputs, LANES) // LANES
        self._steps = _up(-(-self.inputs // self._kind.inputs), _STRANDS)
        self._data = self._laid_out(weight.detach())
        extra = self._blocks * LANES - self.outputs
        self._bias = None if bias is None else pad(bias.detach(), (0, extra)).contiguous()
        for rest in range(_rows_at_once(self._target)):
            _code(weight.dtype, rest, self._target)  # now rather than within the first answer

    def times(
        self,
        rows: torch.Tensor,
        after: After = After.NOTHING,
        other: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[n, inputs] to [n, outputs].

        Args:
            rows: of the weight's type.
            after: what follows.
            other: [n, outputs], for ``TIMES`` and ``PLUS``.

        Raises:
            ValueError: shapes or types do not fit.
        """
        self._check(rows, after, other)
        count = len(rows)
        rows = self._padded(rows, self._steps * self._kind.inputs)
        width = self._blocks * LANES
        out = torch.empty(count, width, dtype=rows.dtype)
        other = None if other is None else self._padded(other, width)
        panel = self._panel(rows)
        for first in range(0, count, panel):
            part = slice(first, first + panel)
            self._multiply(rows[part], out[part], after, None if other is None else other[part])
        return out if width == self.outputs else out[:, : self.outputs].contiguous()

    def _panel(self, rows: torch.Tensor) -> int:
        """Rows that stay in a core's cache while every block of the weight meets them."""
        at_once = _rows_at_once(self._target)
        return max(1, _PANEL // (rows.shape[1] * rows.itemsize) // at_once) * at_once

    def _multiply(
        self, rows: torch.Tensor, out: torch.Tensor, after: After, other: torch.Tensor | None
    ) -> None:
        at_once = _rows_at_once(self._target)
        _code(rows.dtype, len(rows) % at_once, self._target)(
            self._data.data_ptr(),
            rows.data_ptr(),
            out.data_ptr(),
            0 if other is None else other.data_ptr(),
            0 if self._bias is None else self._bias.data_ptr(),
            self._steps,
            self._blocks,
            len(rows) // at_once,
            int(after),
        )

    def _laid_out(self, weight: torch.Tensor) -> torch.Tensor:
        """[blocks, steps, LANES, inputs of a step]."""
        inputs = self._kind.inputs
        missing = (0, self._steps * inputs - self.inputs, 0, self._blocks * LANES - self.outputs)
        whole = pad(weight, missing) if any(missing) else weight
        return whole.view(self._blocks, LANES, self._steps, inputs).permute(0, 2, 1, 3).contiguous()

    def _check(self, rows: torch.Tensor, after: After, other: torch.Tensor | None) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.inputs or rows.dtype != self._data.dtype:
            raise ValueError(f"rows {tuple(rows.shape)} of {rows.dtype} do not fit {self.inputs}")
        if (other is not None) != (after in {After.TIMES, After.PLUS}):
            raise ValueError(f"{after.name} with another operand, or without the one that it needs")
        if other is not None and (
            tuple(other.shape) != (len(rows), self.outputs) or other.dtype != rows.dtype
        ):
            raise ValueError(f"{tuple(other.shape)} of {other.dtype} is not the product's shape")

    @staticmethod
    def _padded(rows: torch.Tensor, width: int) -> torch.Tensor:
        missing = width - rows.shape[1]
        return (pad(rows, (0, missing)) if missing else rows).contiguous()


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _rows_at_once(target: Processor) -> int:
    """Whose sums fit into the processor's registers beside what is multiplied."""
    return 8 if target.has("avx512f") else 4


@cache
def _code(dtype: torch.dtype, rest: int, target: Processor) -> Code:
    return Code(program(dtype, rest, _rows_at_once(target)), target)


def program(dtype: torch.dtype, rest: int, at_once: int) -> str:
    """For numbers of rows that leave ``rest`` when they are taken ``at_once``, LLVM's language."""
    kind = KINDS[dtype]
    text = Text()
    text.add(
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        PAIRS,
        EXPONENTIAL,
        _finish(kind),
        "define void @entry(ptr %arguments, i64 %rank, i64 %size) {",
        "start:",
    )
    text.arguments(_ARGUMENTS)
    text.add()
    text.share("%blocks")
    text.add(
        f"  %width = mul i64 %blocks, {LANES}",
        f"  %stride = mul i64 %steps, {_BLOCK}",
        "  %any = icmp slt i64 %from, %to",
        "  br i1 %any, label %block, label %end",
        "block:",
        "  %number = phi i64 [%from, %start], [%next, %blockend]",
        "  %offset = mul i64 %number, %stride",
        "  %data = getelementptr i8, ptr %weight, i64 %offset",
        f"  %column = mul i64 %number, {LANES}",
        "  %some = icmp sgt i64 %fulls, 0",
        "  br i1 %some, label %full, label %rest",
        "full:",
        "  %turn = phi i64 [0, %block], [%turned, %fullend]",
        f"  %row = mul i64 %turn, {at_once}",
    )
    _tile(text, kind, "full", at_once, "%row")
    text.add(
        "  br label %fullend",
        "fullend:",
        "  %turned = add i64 %turn, 1",
        "  %more = icmp slt i64 %turned, %fulls",
        "  br i1 %more, label %full, label %rest",
        "rest:",
        f"  %last = mul i64 %fulls, {at_once}",
    )
    if rest:
        _tile(text, kind, "rest", rest, "%last")
    text.add(
        "  br label %blockend",
        "blockend:",
        "  %next = add i64 %number, 1",
        "  %again = icmp slt i64 %next, %to",
        "  br i1 %again, label %block, label %end",
        "end:",
        "  ret void",
        "}",
    )
    return str(text)


def _tile(text: Text, kind: Kind, label: str, count: int, first: str) -> None:
    """One block of the weight with ``count`` rows from row ``first`` on; begins as ``label``."""
    # The sums of one row wait for each other: with few rows, several steps of each are under way.
    strands = max(1, _STRANDS // count)
    rows = [text.value(f"add i64 {first}, {index}") for index in range(count)]
    inputs = [text.at("%rows", "i32", text.value(f"mul i64 {row}, %steps")) for row in rows]
    sums = [[f"%{label}{row}.{strand}" for strand in range(strands)] for row in range(count)]
    loop, step = f"{label}loop", f"%{label}step"
    text.add(f"  br label %{loop}", f"{loop}:")
    text.add(f"  {step} = phi i64 [0, %{label}], [{step}n, %{loop}]")
    for name in (name for row in sums for name in row):
        text.add(f"  {name} = phi <16 x float> [zeroinitializer, %{label}], [{name}n, %{loop}]")
    for strand in range(strands):
        now = text.value(f"add i64 {step}, {strand}")
        _step(text, kind, now, [row[strand] for row in sums], inputs)
    text.add(
        f"  {step}n = add i64 {step}, {strands}",
        f"  %{label}more = icmp slt i64 {step}n, %steps",
        f"  br i1 %{label}more, label %{loop}, label %{label}done",
        f"{label}done:",
    )
    for row, names in zip(rows, sums, strict=True):
        total = f"{names[0]}n"
        for name in names[1:]:
            total = text.value(f"fadd <16 x float> {total}, {name}n")
        place = text.value(f"mul i64 {row}, %width")
        place = text.value(f"add i64 {place}, %column")
        text.add(
            f"  call void @finish(<16 x float> {total}, ptr %bias, i64 %column, ptr %other,"
            f" ptr %out, i64 {place}, i64 %after)"
        )


def _step(text: Text, kind: Kind, step: str, sums: list[str], inputs: list[str]) -> None:
    """Adds to ``sums`` what the inputs of one step give; the new ones are called as the old, n."""
    place = text.at("%data", "i8", text.value(f"mul i64 {step}, {_BLOCK}"))
    ahead = text.at(place, "i8", str(_AHEAD))
    text.add(f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
    weight = text.value(f"load {kind.vector}, ptr {place}, align 64")
    for total, row in zip(sums, inputs, strict=True):
        number = text.value(f"load i32, ptr {text.at(row, 'i32', step)}")
        spread = text.value(f"bitcast <16 x i32> {text.spread(number, 'i32')} to {kind.vector}")
        text.add(f"  {total}n = {kind.added(total, weight, spread)}")


def _finish(kind: Kind) -> str:
    """The end of 16 sums: bias, what follows, and their place."""
    vector = f"<16 x {kind.element}>"

    def load(name: str, pointer: str, index: str) -> str:
        loaded = (
            f"  %{name}p = getelementptr {kind.element}, ptr {pointer}, i64 {index}",
            f"  %{name}w = load {vector}, ptr %{name}p, align 4",
            f"  %{name} = {widened(kind.element, f'%{name}w')}",
        )
        return "\n".join(loaded)

    return f"""
define internal void @finish(<16 x float> %sum, ptr %bias, i64 %column, ptr %other, ptr %out,
                             i64 %place, i64 %after) alwaysinline {{
start:
  %biased = icmp ne ptr %bias, null
  br i1 %biased, label %add, label %choose
add:
{load("b", "%bias", "%column")}
  %with = fadd <16 x float> %sum, %b
  br label %choose
choose:
  %x = phi <16 x float> [%sum, %start], [%with, %add]
  switch i64 %after, label %write [
    i64 {After.SILU}, label %silu
    i64 {After.TIMES}, label %times
    i64 {After.PLUS}, label %plus
  ]
silu:
  %negative = fneg <16 x float> %x
  %power = call <16 x float> @exponential(<16 x float> %negative)
  %below = fadd <16 x float> %power, splat (float 1.0)
  %silued = fdiv <16 x float> %x, %below
  br label %write
times:
{load("f", "%other", "%place")}
  %product = fmul <16 x float> %x, %f
  br label %write
plus:
{load("a", "%other", "%place")}
  %total = fadd <16 x float> %x, %a
  br label %write
write:
  %y = phi <16 x float> [%x, %choose], [%silued, %silu], [%product, %times], [%total, %plus]
  %n = {narrowed(kind.element, "%y")}
  %o = getelementptr {kind.element}, ptr %out, i64 %place
  store {vector} %n, ptr %o, align 4
  ret void
}}
"""
