"""What the kernels that go row by row share: 16 numbers of a row, or its last few, as float32."""

from __future__ import annotations

from typing import Final

from triptych_worker.kernels.machine import LANES, Text
from triptych_worker.kernels.vectors import narrowed, widened

# A call of fewer numbers is over before a second thread has woken.
FEW: Final = 2**15

# Of integers as wide as the elements: what is only moved needs no other type.
MASKED: Final = "\n".join(
    f"declare <16 x {word}> @llvm.masked.load.v16{word}.p0(ptr, i32, <16 x i1>, <16 x {word}>)\n"
    f"declare void @llvm.masked.store.v16{word}.p0(<16 x {word}>, ptr, i32, <16 x i1>)"
    for word in ("i16", "i32")
)
_BYTES: Final = {"float": 4, "bfloat": 2}


def first(count: int) -> str:
    """The mask of the first ``count`` of 16 numbers."""
    return f"<{', '.join(f'i1 {str(lane < count).lower()}' for lane in range(LANES))}>"


def load(text: Text, element: str, place: str, mask: str | None = None) -> str:
    """The 16 ``element`` at ``place`` as float32; where the mask is not, 0 without a look."""
    if mask is None:
        loaded = text.value(f"load <16 x {element}>, ptr {place}, align {_BYTES[element]}")
    else:
        word = f"i{_BYTES[element] * 8}"
        words = text.value(
            f"call <16 x {word}> @llvm.masked.load.v16{word}.p0(ptr {place},"
            f" i32 {_BYTES[element]}, <16 x i1> {mask}, <16 x {word}> zeroinitializer)"
        )
        loaded = text.value(f"bitcast <16 x {word}> {words} to <16 x {element}>")
    return text.value(widened(element, loaded))


def store(text: Text, element: str, number: str, place: str, mask: str | None = None) -> None:
    """Rounds 16 float32 and writes them to ``place``, where the mask is."""
    rounded = text.value(narrowed(element, number))
    if mask is None:
        text.add(f"  store <16 x {element}> {rounded}, ptr {place}, align {_BYTES[element]}")
        return
    word = f"i{_BYTES[element] * 8}"
    words = text.value(f"bitcast <16 x {element}> {rounded} to <16 x {word}>")
    text.add(
        f"  call void @llvm.masked.store.v16{word}.p0(<16 x {word}> {words}, ptr {place},"
        f" i32 {_BYTES[element]}, <16 x i1> {mask})"
    )
