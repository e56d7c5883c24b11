"""From LLVM's language to machine code of this processor, and calls of it.

The only place that knows llvmlite and the processor. Code that is wrong in its addresses brings
down the process, so callers check shapes before they hand out pointers.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm
import torch  # loads the OpenMP that is looked for below

LANES: Final = 16  # numbers of float32 that an instruction takes

_ENTRY: Final = "entry"
# Every thread of a team runs this, which asks who it is. GOMP_parallel is what a compiler makes of
# `#pragma omp parallel`: the threads are those that PyTorch's own operations use.
_TEAM: Final = """
define void @team(ptr %arguments) {{
  %rank32 = call i32 inttoptr (i64 {rank} to ptr)()
  %size32 = call i32 inttoptr (i64 {size} to ptr)()
  %rank = sext i32 %rank32 to i64
  %size = sext i32 %size32 to i64
  call void @entry(ptr %arguments, i64 %rank, i64 %size)
  ret void
}}
"""


@dataclass(frozen=True, slots=True)
class Processor:
    """What code is made for: a processor's name and features as LLVM writes them."""

    name: str
    features: str

    def has(self, feature: str) -> bool:
        """Whether it has ``feature``."""
        return f"+{feature}" in _apart(self.features)


@cache
def _apart(features: str) -> frozenset[str]:
    """Once: they are more than a hundred, and asked about at every call of a kernel."""
    return frozenset(features.split(","))


@cache
def processor() -> Processor:
    """The one that this process runs on."""
    features: str = llvm.get_host_cpu_features().flatten()
    return Processor(llvm.get_host_cpu_name(), features)


class Code:
    """Compiled code, which lives as long as this.

    Args:
        text: a module that defines ``@entry(ptr arguments, i64 rank, i64 size)``: what the thread
            ``rank`` of ``size`` does. ``arguments`` are 64-bit integers.
        target: what it is made for.
    """

    def __init__(self, text: str, target: Processor) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(text + _team())
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=target.name, features=target.features, opt=3
        )
        passes = llvm.create_pass_builder(
            machine, llvm.create_pipeline_tuning_options(speed_level=3)
        )
        passes.getModulePassManager().run(module, passes)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._team = ctypes.c_void_p(self._engine.get_function_address("team"))
        entry = self._engine.get_function_address(_ENTRY)
        self._entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(entry)

    def __call__(self, *arguments: int, alone: bool = False) -> None:
        """Runs it, shared by as many threads as PyTorch shares an operation of this thread by, or
        by this one ``alone``: to wake the others takes longer than a little work does."""
        values = (ctypes.c_int64 * len(arguments))(*arguments)
        openmp = None if alone else _openmp()
        if openmp is None or torch.get_num_threads() == 1:
            self._entry(ctypes.addressof(values), 0, 1)
        else:
            openmp.GOMP_parallel(self._team, values, 0, 0)


class Text:
    """Lines of LLVM's language, whose values get names by number."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers = itertools.count()

    def add(self, *lines: str) -> None:
        """Lines as they are."""
        self._lines.extend(lines)

    def value(self, instruction: str) -> str:
        """The name of what ``instruction`` gives."""
        name = f"%v{next(self._numbers)}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def at(self, pointer: str, kind: str, index: str) -> str:
        """The address of element ``index`` of ``kind`` from ``pointer`` on."""
        return self.value(f"getelementptr {kind}, ptr {pointer}, i64 {index}")

    def share(self, total: str) -> None:
        """Which of ``total`` items are this thread's: from ``%from`` below ``%to``."""
        self.add(
            f"  %before = mul i64 {total}, %rank",
            "  %from = sdiv i64 %before, %size",
            f"  %including = add i64 %before, {total}",
            "  %to = sdiv i64 %including, %size",
        )

    def spread(self, number: str, kind: str = "float") -> str:
        """16 times ``number``."""
        one = self.value(f"insertelement <16 x {kind}> poison, {kind} {number}, i32 0")
        return self.value(
            f"shufflevector <16 x {kind}> {one}, <16 x {kind}> poison, <16 x i32> zeroinitializer"
        )

    @contextmanager
    def loop(
        self,
        label: str,
        first: str,
        bound: str,
        step: int = 1,
        sums: Mapping[str, str] | None = None,
    ) -> Iterator[str]:
        """Lines added inside run for each index from ``first`` below ``bound``; it gives the index.

        Args:
            label: of its blocks; no other loop has it.
            first: index.
            bound: of the index.
            step: what the index grows by.
            sums: vectors of 16 float32 that are carried on, and what they begin with: inside,
                what is called as one of them, n, becomes its next value.
        """
        index = f"%{label}"
        self.add(f"  br label {index}.first", f"{label}.first:", f"  br label {index}.test")
        self.add(f"{label}.test:")
        self.add(f"  {index} = phi i64 [{first}, {index}.first], [{index}.next, {index}.again]")
        for name, begin in (sums or {}).items():
            self.add(
                f"  {name} = phi <16 x float> [{begin}, {index}.first], [{name}n, {index}.again]"
            )
        self.add(
            f"  {index}.more = icmp slt i64 {index}, {bound}",
            f"  br i1 {index}.more, label {index}.body, label {index}.done",
            f"{label}.body:",
        )
        yield index
        self.add(
            f"  br label {index}.again",
            f"{label}.again:",
            f"  {index}.next = add i64 {index}, {step}",
            f"  br label {index}.test",
            f"{label}.done:",
        )

    def arguments(self, names: tuple[str, ...]) -> None:
        """Names the integers that ``@entry`` was given; those that begin with @ are addresses."""
        for index, name in enumerate(names):
            place = self.at("%arguments", "i64", str(index))
            if name.startswith("@"):
                self.add(f"  %{name[1:]} = load ptr, ptr {place}")
            else:
                self.add(f"  %{name} = load i64, ptr {place}")

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


@cache
def _openmp() -> Any:
    """The library that is loaded into this process; None for another OpenMP than GNU's."""
    loaded = ctypes.CDLL(None)
    wanted = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    return loaded if all(hasattr(loaded, name) for name in wanted) else None


def _team() -> str:
    openmp = _openmp()
    if openmp is None:
        return "define void @team(ptr %arguments) {\n  ret void\n}\n"
    rank, size = (
        ctypes.cast(function, ctypes.c_void_p).value
        for function in (openmp.omp_get_thread_num, openmp.omp_get_num_threads)
    )
    return _TEAM.format(rank=rank, size=size)
