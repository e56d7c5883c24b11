"""Attention of one token of each of many sequences over its keys and values.

Query heads that share a key head are taken together, so keys and values are read once, from one end
to the other. Sums are in float32 whatever the type.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch

from triptych_worker.kernels.machine import LANES, Code, Processor, Text, processor
from triptych_worker.kernels.vectors import EXPONENTIAL, KINDS, constant, narrowed, serves, widened

_REGISTERS: Final = 16  # for queries, or what becomes of them; as many are left for the rest
_UNSEEN: Final = -1e30  # a score whose exponential is nothing
_ARGUMENTS: Final = (
    "@query", "@keys", "@values", "@starts", "@lengths", "@scores", "@out",
    "tokens", "row", "head", "room", "scale",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """What code is made for."""

    dtype: torch.dtype
    heads: int
    kv_heads: int
    size: int

    @property
    def vectors(self) -> int:
        """Of one head."""
        return self.size // LANES

    @property
    def group(self) -> int:
        """Query heads that are taken together: they share keys, and fit into registers."""
        share = self.heads // self.kv_heads
        fitting = max(1, _REGISTERS // self.vectors)
        return max(
            count for count in range(1, share + 1) if share % count == 0 and count <= fitting
        )

    @property
    def groups(self) -> int:
        """Of one token."""
        return self.heads // self.group


def attends(dtype: torch.dtype, size: int, target: Processor | None = None) -> bool:
    """Whether there is code for heads of ``size`` on ``target``; None is this machine."""
    return serves(dtype, target) and size % LANES == 0


class Places:
    """Where each token's keys and values are: ``lengths[t]`` tokens of the pool from
    ``starts[t]`` on."""

    def __init__(self, starts: Sequence[int], lengths: Sequence[int]) -> None:
        self.starts = torch.tensor(starts, dtype=torch.int64)
        self.lengths = torch.tensor(lengths, dtype=torch.int64)
        self.ends = max(start + length for start, length in zip(starts, lengths, strict=True))
        self.longest = max(lengths)
        self.shortest = min(*lengths, min(starts) + 1)

    def __len__(self) -> int:
        return len(self.starts)


def attend(query: torch.Tensor, kv: torch.Tensor, places: Places, scaling: float) -> torch.Tensor:
    """Attention output [T, heads * D].

    Args:
        query: [T, heads, D], each token's heads one after another.
        kv: [2, kv_heads, tokens, D] of one layer, keys before values, contiguous but for the first
            two dimensions.
        places: of the T tokens.
        scaling: of the scores.

    Raises:
        ValueError: shapes or types do not fit, or a place is outside of ``kv``.
    """
    shape = Shape(query.dtype, query.shape[1], kv.shape[1], query.shape[2])
    _check(query, kv, places, shape)
    tokens = len(places)
    room = -(-places.longest // LANES) * LANES
    scores = torch.empty(tokens * shape.heads * room, dtype=torch.float32)
    out = torch.empty(tokens, shape.heads * shape.size, dtype=query.dtype)
    keys, values = kv
    _code(shape)(
        query.data_ptr(),
        keys.data_ptr(),
        values.data_ptr(),
        places.starts.data_ptr(),
        places.lengths.data_ptr(),
        scores.data_ptr(),
        out.data_ptr(),
        tokens,
        query.stride(0),
        kv.stride(1),
        room,
        int.from_bytes(struct.pack("<f", scaling), "little"),
    )
    return out


def prepare(shape: Shape) -> None:
    """Compiles now rather than within the first answer, if there is code for this shape."""
    if attends(shape.dtype, shape.size):
        _code(shape)


def _check(query: torch.Tensor, kv: torch.Tensor, places: Places, shape: Shape) -> None:
    served = attends(shape.dtype, shape.size) and shape.heads % shape.kv_heads == 0
    if not served or kv.dtype != query.dtype or len(query) != len(places):
        raise ValueError(f"{tuple(query.shape)} over {tuple(kv.shape)} is not served: {shape}")
    if query.stride()[1:] != (shape.size, 1) or kv.stride()[2:] != (shape.size, 1):
        raise ValueError("the numbers of a head must lie next to each other")
    if places.shortest < 1 or places.ends > kv.shape[2] or kv.shape[3] != shape.size:
        raise ValueError(f"places up to {places.ends} are not in {tuple(kv.shape)}")


@cache
def _code(shape: Shape) -> Code:
    return Code(program(shape), processor())


def program(shape: Shape) -> str:
    """In LLVM's language. A thread takes a share of all groups of all tokens."""
    text = Text()
    text.add(
        "declare float @llvm.vector.reduce.fadd.v16f32(float, <16 x float>)",
        "declare float @llvm.vector.reduce.fmax.v16f32(<16 x float>)",
        EXPONENTIAL,
        "define void @entry(ptr %arguments, i64 %rank, i64 %size) {",
        "start:",
    )
    text.arguments(_ARGUMENTS)
    text.add(
        "  %scale32 = trunc i64 %scale to i32",
        "  %scalef = bitcast i32 %scale32 to float",
        f"  %items = mul i64 %tokens, {shape.groups}",
    )
    text.share("%items")
    text.add(
        "  %any = icmp slt i64 %from, %to",
        "  br i1 %any, label %item, label %end",
        "item:",
        "  %number = phi i64 [%from, %start], [%next, %sum.done]",
        f"  %token = sdiv i64 %number, {shape.groups}",
        f"  %group = srem i64 %number, {shape.groups}",
        f"  %first = mul i64 %group, {shape.group}",
        f"  %kvhead = sdiv i64 %first, {shape.heads // shape.kv_heads}",
    )
    start = text.value(f"load i64, ptr {text.at('%starts', 'i64', '%token')}")
    text.add(f"  %length = load i64, ptr {text.at('%lengths', 'i64', '%token')}")
    offset = text.value(f"mul i64 {start}, {shape.size}")
    offset = text.value(f"add i64 {offset}, {text.value('mul i64 %kvhead, %head')}")
    element = KINDS[shape.dtype].element
    text.add(
        f"  %k = getelementptr {element}, ptr %keys, i64 {offset}",
        f"  %v = getelementptr {element}, ptr %values, i64 {offset}",
        "  %sixteens = add i64 %length, 15",
        "  %whole = and i64 %sixteens, -16",
    )
    scores = [
        text.at("%scores", "float", text.value(f"mul i64 {row}, %room"))
        for row in _rows(text, shape)
    ]
    _score(text, shape, scores)
    parts = [_soften(text, f"soft{index}", row) for index, row in enumerate(scores)]
    _sum(text, shape, scores, parts)
    text.add(
        "  %next = add i64 %number, 1",
        "  %again = icmp slt i64 %next, %to",
        "  br i1 %again, label %item, label %end",
        "end:",
        "  ret void",
        "}",
    )
    return str(text)


def _rows(text: Text, shape: Shape) -> list[str]:
    """Numbers of the group's heads among all heads of all tokens."""
    head = text.value(f"mul i64 %token, {shape.heads}")
    head = text.value(f"add i64 {head}, %first")
    return [text.value(f"add i64 {head}, {index}") for index in range(shape.group)]


def _vectors(text: Text, shape: Shape, pointer: str, offset: str) -> list[str]:
    """One head's numbers from element ``offset`` on, in float32."""
    element = KINDS[shape.dtype].element
    row = text.at(pointer, element, offset)
    loaded = [
        text.value(f"load <16 x {element}>, ptr {text.at(row, element, str(n * LANES))}, align 4")
        for n in range(shape.vectors)
    ]
    return [text.value(widened(element, name)) for name in loaded]


def _fma(text: Text, a: str, b: str, c: str) -> str:
    return text.value(
        f"call <16 x float> @llvm.fma.v16f32(<16 x float> {a}, <16 x float> {b}, <16 x float> {c})"
    )


def _loop(
    text: Text,
    label: str,
    before: str,
    bound: str,
    *,
    step: int = 1,
    sums: dict[str, str] | None = None,
) -> str:
    """Begins a loop after block ``before`` and gives its index, which counts to ``bound``; each of
    ``sums`` begins as told, and goes on as what is named by its name and n."""
    index = f"%{label}.i"
    text.add(f"  br label %{label}", f"{label}:")
    text.add(f"  {index} = phi i64 [0, %{before}], [{index}n, %{label}]")
    for name, first in (sums or {}).items():
        text.add(f"  {name} = phi <16 x float> [{first}, %{before}], [{name}n, %{label}]")
    text.add(f"  {index}n = add i64 {index}, {step}")
    text.add(f"  {index}c = icmp slt i64 {index}n, {bound}")
    return index


def _loop_end(text: Text, label: str) -> None:
    text.add(f"  br i1 %{label}.ic, label %{label}, label %{label}.done", f"{label}.done:")


def _score(text: Text, shape: Shape, scores: list[str]) -> None:
    """Scaled products of the group's queries with all keys; beyond them up to 16 are unseen."""
    queries, scales = [], text.spread("%scalef")
    for number in range(shape.group):
        head = text.value(f"add i64 %first, {number}")
        offset = text.value(f"mul i64 {head}, {shape.size}")
        offset = text.value(f"add i64 {offset}, {text.value('mul i64 %token, %row')}")
        vectors = _vectors(text, shape, "%query", offset)
        queries.append([text.value(f"fmul <16 x float> {one}, {scales}") for one in vectors])
    label = "score"
    index = _loop(text, label, "item", "%length")
    key = _vectors(text, shape, "%k", text.value(f"mul i64 {index}, {shape.size}"))
    for query, row in zip(queries, scores, strict=True):
        total = text.value(f"fmul <16 x float> {query[0]}, {key[0]}")
        for one, other in zip(query[1:], key[1:], strict=True):
            total = _fma(text, one, other, total)
        score = text.value(
            f"call reassoc float @llvm.vector.reduce.fadd.v16f32(float 0.0, <16 x float> {total})"
        )
        text.add(f"  store float {score}, ptr {text.at(row, 'float', index)}")
    _loop_end(text, label)
    text.add(
        "  %uneven = icmp slt i64 %length, %whole",
        "  br i1 %uneven, label %fill, label %fill.done",
        "fill:",
        "  %fill.i = phi i64 [%length, %score.done], [%fill.in, %fill]",
    )
    for row in scores:
        unseen = constant(_UNSEEN).removeprefix("splat (").removesuffix(")")
        text.add(f"  store {unseen}, ptr {text.at(row, 'float', '%fill.i')}")
    text.add("  %fill.in = add i64 %fill.i, 1", "  %fill.ic = icmp slt i64 %fill.in, %whole")
    _loop_end(text, "fill")


def _soften(text: Text, label: str, row: str) -> str:
    """Scores become exponentials of what they are below the highest; gives 1 through their sum."""
    previous = "fill.done" if label == "soft0" else f"soft{int(label[4:]) - 1}e.done"
    highest, total = f"%{label}.m", f"%{label}.t"
    index = _loop(
        text, f"{label}m", previous, "%whole", step=LANES, sums={highest: constant(_UNSEEN)}
    )
    scores = text.value(f"load <16 x float>, ptr {text.at(row, 'float', index)}, align 4")
    above = text.value(f"fcmp ogt <16 x float> {scores}, {highest}")  # not if NaN
    text.add(
        f"  {highest}n = select <16 x i1> {above}, <16 x float> {scores}, <16 x float> {highest}"
    )
    _loop_end(text, f"{label}m")
    one = text.value(f"call float @llvm.vector.reduce.fmax.v16f32(<16 x float> {highest}n)")
    one = text.spread(one)
    index = _loop(
        text, f"{label}e", f"{label}m.done", "%whole", step=LANES, sums={total: "zeroinitializer"}
    )
    place = text.at(row, "float", index)
    scores = text.value(f"load <16 x float>, ptr {place}, align 4")
    below = text.value(f"fsub <16 x float> {scores}, {one}")
    power = text.value(f"call <16 x float> @exponential(<16 x float> {below})")
    text.add(
        f"  store <16 x float> {power}, ptr {place}, align 4",
        f"  {total}n = fadd <16 x float> {total}, {power}",
    )
    _loop_end(text, f"{label}e")
    whole = text.value(
        f"call reassoc float @llvm.vector.reduce.fadd.v16f32(float 0.0, <16 x float> {total}n)"
    )
    return text.value(f"fdiv float 1.0, {whole}")


def _sum(text: Text, shape: Shape, scores: list[str], parts: list[str]) -> None:
    """The values' mean by what has become of the scores, written to the output."""
    element = KINDS[shape.dtype].element
    before = f"soft{shape.group - 1}e.done"
    sums = [[f"%sum.{g}.{n}" for n in range(shape.vectors)] for g in range(shape.group)]
    zeros = dict.fromkeys((name for row in sums for name in row), "zeroinitializer")
    index = _loop(text, "sum", before, "%length", sums=zeros)
    value = _vectors(text, shape, "%v", text.value(f"mul i64 {index}, {shape.size}"))
    for row, names in zip(scores, sums, strict=True):
        one = text.value(f"load float, ptr {text.at(row, 'float', index)}")
        spread = text.spread(one)
        for name, vector in zip(names, value, strict=True):
            text.add(
                f"  {name}n = call <16 x float> @llvm.fma.v16f32(<16 x float> {spread},"
                f" <16 x float> {vector}, <16 x float> {name})"
            )
    _loop_end(text, "sum")
    for row, names, part in zip(_rows(text, shape), sums, parts, strict=True):
        place = text.at("%out", element, text.value(f"mul i64 {row}, {shape.size}"))
        spread = text.spread(part)
        for number, name in enumerate(names):
            mean = text.value(f"fmul <16 x float> {name}n, {spread}")
            rounded = text.value(narrowed(element, mean))
            target = text.at(place, element, str(number * LANES))
            text.add(f"  store <16 x {element}> {rounded}, ptr {target}, align 4")
