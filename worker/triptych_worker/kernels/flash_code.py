"""The code of ``flash``, in LLVM's language.

16 queries lie in the 16 numbers of a vector, so what belongs to each of them, its scores, the
highest and the sum, is never added up across a vector. A thread takes up to four such blocks of
queries with one head, and all their keys a panel at a time: what it works on stays in its cache
however many keys there are.
"""

from __future__ import annotations

from typing import Final

from triptych_worker.kernels import rows
from triptych_worker.kernels.flash_room import PANEL, VECTOR, Room
from triptych_worker.kernels.machine import LANES, Text
from triptych_worker.kernels.vectors import EXPONENTIAL, PAIRS, Kind, constant, narrowed

FIELDS: Final = 4  # of an item: first query, queries, first key, keys that the first query sees

_KEYS: Final = 8  # whose sums are in registers at a time; their latency is hidden by as many
_UNSEEN: Final = -1e30  # a score whose exponential is nothing
_ARGUMENTS: Final = (
    "@query", "@keys", "@values", "@items", "@scratch", "@out",
    "count", "heads", "share", "queryrow", "queryhead", "keyrow", "keyhead", "growth", "scale",
)  # fmt: skip


def program(kind: Kind, size: int) -> str:
    """For heads of ``size``; ``entry`` takes what ``_ARGUMENTS`` names."""
    return _Program(kind, size).written()


class _Program:
    def __init__(self, kind: Kind, size: int) -> None:
        self._text = Text()
        self._kind = kind
        self._size = size
        self._room = Room(kind, size)

    def written(self) -> str:
        text = self._text
        text.add(
            PAIRS,
            rows.MASKED,
            EXPONENTIAL,
            "declare i64 @llvm.smin.i64(i64, i64)",
            "declare i64 @llvm.smax.i64(i64, i64)",
        )
        text.add("define void @entry(ptr %arguments, i64 %rank, i64 %size) {", "start:")
        text.arguments(_ARGUMENTS)
        text.add(
            "  %scale32 = trunc i64 %scale to i32",
            "  %scalef = bitcast i32 %scale32 to float",
            "  %all = mul i64 %count, %heads",
        )
        text.share("%all")
        text.add(
            f"  %mine = mul i64 %rank, {self._room.whole}",
            "  %room = getelementptr i8, ptr %scratch, i64 %mine",
        )
        with text.loop("item", "%from", "%to") as number:
            self._place(number)
            self._take_queries()
            with text.loop("panel", "0", "%keycount", PANEL) as panel:
                self._panel(panel)
            self._give_means()
        text.add("  ret void", "}")
        return str(text)

    # An item.

    def _place(self, number: str) -> None:
        """Where the item's first rows are, for its head."""
        text, element = self._text, self._kind.element
        head = text.value(f"sdiv i64 {number}, %count")
        item = text.value(f"mul i64 {text.value(f'srem i64 {number}, %count')}, {FIELDS}")
        item = text.at("%items", "i64", item)
        for index, name in enumerate(("firstquery", "queries", "firstkey", "seen")):
            text.add(f"  %{name} = load i64, ptr {text.at(item, 'i64', str(index))}")
        shared = text.value(f"sdiv i64 {head}, %share")
        row = text.value("mul i64 %firstquery, %queryrow")
        offset = text.value(f"add i64 {row}, {text.value(f'mul i64 {head}, %queryhead')}")
        text.add(f"  %q = getelementptr {element}, ptr %query, i64 {offset}")
        row = text.value("mul i64 %firstkey, %keyrow")
        offset = text.value(f"add i64 {row}, {text.value(f'mul i64 {shared}, %keyhead')}")
        text.add(
            f"  %k = getelementptr {element}, ptr %keys, i64 {offset}",
            f"  %v = getelementptr {element}, ptr %values, i64 {offset}",
            f"  %outrow = mul i64 %heads, {self._size}",
        )
        row = text.value("mul i64 %firstquery, %outrow")
        offset = text.value(f"add i64 {row}, {text.value(f'mul i64 {head}, {self._size}')}")
        text.add(
            f"  %o = getelementptr {element}, ptr %out, i64 {offset}",
            "  %lastquery = sub i64 %queries, 1",
            "  %grown = mul i64 %lastquery, %growth",
            "  %keycount = add i64 %seen, %grown",
        )

    def _take_queries(self) -> None:
        """Lays the queries out as they are multiplied, and begins what is summed."""
        text, room = self._text, self._room
        with text.loop("take", "0", "%queries", LANES) as first:
            queries = self._block_of(0, room.block, first)
            rows = [
                self._row("%q", self._least(self._sum(first, index), "%lastquery"), "%queryrow")
                for index in range(LANES)
            ]
            for step in range(0, room.steps, LANES):
                parts = [self._part(row, "i32", step, room.steps) for row in rows]
                for index, vector in enumerate(self._turned(parts, "i32")):
                    place = text.at(queries, "i8", str((step + index) * VECTOR))
                    text.add(f"  store <16 x i32> {vector}, ptr {place}, align 64")
            self._store(self._block_of(room.highest, VECTOR, first), constant(_UNSEEN))
            self._store(self._block_of(room.sums, VECTOR, first), "zeroinitializer")
            means = self._block_of(room.means, room.width * VECTOR, first)
            for number in range(room.width):
                self._store(text.at(means, "i8", str(number * VECTOR)), "zeroinitializer")

    def _give_means(self) -> None:
        """Writes the output, query by query again."""
        text, room, element = self._text, self._room, self._kind.element
        spare = text.at("%room", "i8", str(room.spare))
        with text.loop("give", "0", "%queries", LANES) as first:
            total = self._load(self._block_of(room.sums, VECTOR, first))
            part = text.value(f"fdiv <16 x float> {constant(1.0)}, {total}")
            means = self._block_of(room.means, room.width * VECTOR, first)
            places = []
            for index in range(LANES):
                query = self._sum(first, index)
                there = text.value(f"icmp slt i64 {query}, %queries")
                row = self._row("%o", query, "%outrow")
                places.append(text.value(f"select i1 {there}, ptr {row}, ptr {spare}"))
            for number in range(0, room.width, LANES):
                vectors = []
                for index in range(LANES):
                    place = text.at(means, "i8", str((number + index) * VECTOR))
                    vectors.append(text.value(f"fmul <16 x float> {self._load(place)}, {part}"))
                mask = rows.first(self._size - number)
                for row, vector in zip(places, self._turned(vectors, "float"), strict=True):
                    rows.store(text, element, vector, text.at(row, element, str(number)), mask)

    # A panel of keys.

    def _panel(self, panel: str) -> None:
        text = self._text
        left = text.value(f"sub i64 %keycount, {panel}")
        text.add(
            f"  %there = call i64 @llvm.smin.i64(i64 {left}, i64 {PANEL})",
            "  %lastkey = sub i64 %there, 1",
        )
        keys, values = (self._row(name, panel, "%keyrow") for name in ("%k", "%v"))
        if self._kind.inputs == 2:
            self._pair(values)
        with text.loop("block", "0", "%queries", LANES) as first:
            grown = text.value(f"mul i64 {first}, %growth")
            limit = text.value(f"sub i64 {text.value(f'add i64 %seen, {grown}')}, {panel}")
            most = text.value(f"mul i64 %growth, {LANES - 1}")
            most = text.value(f"add i64 {limit}, {most}")
            text.add(f"  %some = call i64 @llvm.smin.i64(i64 {most}, i64 %there)")
            up = text.value(f"add i64 %some, {_KEYS - 1}")
            text.add(f"  %whole = and i64 {up}, -{_KEYS}")
            self._score(keys, first)
            self._hide(limit)
            self._soften(first)
            self._add_values(values, first)

    def _pair(self, values: str) -> None:
        """Values of every two keys side by side, as an instruction takes them."""
        text, room = self._text, self._room
        up = text.value("add i64 %there, 1")
        bound = text.value(f"sdiv i64 {up}, 2")
        with text.loop("pair", "0", bound) as pair:
            twice = text.value(f"shl i64 {pair}, 1")
            after = self._least(self._sum(twice, 1), "%lastkey")
            rows = [self._row(values, key, "%keyrow") for key in (twice, after)]
            offset = text.value(f"mul i64 {pair}, {room.width * 4}")
            pairs = text.at(text.at("%room", "i8", str(room.pairs)), "i8", offset)
            for number in range(0, room.width, LANES):
                one, two = (self._part(row, "i16", number, self._size) for row in rows)
                order = ", ".join(f"i32 {n}, i32 {n + LANES}" for n in range(LANES))
                both = text.value(
                    f"shufflevector <16 x i16> {one}, <16 x i16> {two}, <32 x i32> <{order}>"
                )
                place = text.at(pairs, "i8", str(number * 4))
                text.add(f"  store <32 x i16> {both}, ptr {place}, align 64")

    def _score(self, keys: str, first: str) -> None:
        """Scaled products of a block of queries with the panel's keys."""
        text, room, vector = self._text, self._room, self._kind.vector
        queries = self._block_of(0, room.block, first)
        scores = text.at("%room", "i8", str(room.scores))
        scale = text.spread("%scalef")
        with text.loop("key", "0", "%some", _KEYS) as key:
            rows = [
                self._row(keys, self._least(self._sum(key, index), "%lastkey"), "%keyrow")
                for index in range(_KEYS)
            ]
            sums = [f"%score{index}" for index in range(_KEYS)]
            with text.loop(
                "step", "0", str(room.steps), sums=dict.fromkeys(sums, "zeroinitializer")
            ) as step:
                place = text.at(queries, "i8", text.value(f"mul i64 {step}, {VECTOR}"))
                query = text.value(f"load {vector}, ptr {place}, align 64")
                for total, row in zip(sums, rows, strict=True):
                    key_part = self._inputs(text.at(row, "i32", step))
                    text.add(f"  {total}n = {self._kind.added(total, query, key_part)}")
            place = text.at(scores, "i8", text.value(f"mul i64 {key}, {VECTOR}"))
            for index, total in enumerate(sums):
                scaled = text.value(f"fmul <16 x float> {total}, {scale}")
                self._store(text.at(place, "i8", str(index * VECTOR)), scaled)

    def _hide(self, limit: str) -> None:
        """Scores of keys that a query does not see: the first of the block sees ``limit``."""
        text = self._text
        lanes = ", ".join(f"i32 {lane}" for lane in range(LANES))
        growth = text.spread(text.value("trunc i64 %growth to i32"), "i32")
        grown = text.value(f"mul <16 x i32> {growth}, <{lanes}>")
        least = text.spread(text.value(f"trunc i64 {limit} to i32"), "i32")
        limits = text.value(f"add <16 x i32> {least}, {grown}")
        begin = text.value(f"call i64 @llvm.smax.i64(i64 {limit}, i64 0)")
        with text.loop("hide", begin, "%whole") as key:
            place = self._scores_of(key)
            number = text.spread(text.value(f"trunc i64 {key} to i32"), "i32")
            seen = text.value(f"icmp slt <16 x i32> {number}, {limits}")
            score = self._load(place)
            unseen = constant(_UNSEEN)
            text.add(
                f"  %hidden = select <16 x i1> {seen}, <16 x float> {score}, <16 x float> {unseen}"
            )
            self._store(place, "%hidden")

    def _soften(self, first: str) -> None:
        """Scores become exponentials of what they are below the highest so far; what was summed
        before is as if it had been told that one."""
        text = self._text
        kept = self._block_of(self._room.highest, VECTOR, first)
        before = self._load(kept)
        with text.loop("most", "0", "%whole", 2, {"%highest": before}) as key:
            place = self._scores_of(key)
            one, two = self._load(place), self._load(text.at(place, "i8", str(VECTOR)))
            higher = text.value(self._higher(one, two))
            text.add(f"  %highestn = {self._higher(higher, '%highest')}")
        self._store(kept, "%highest")
        fallen = text.value(f"fsub <16 x float> {before}, %highest")
        text.add(f"  %factor = call <16 x float> @exponential(<16 x float> {fallen})")
        with text.loop("power", "0", "%whole", 2, {"%total": "zeroinitializer"}) as key:
            place = self._scores_of(key)
            powers = []
            for index in range(2):
                score = self._load(text.at(place, "i8", str(index * VECTOR)))
                below = text.value(f"fsub <16 x float> {score}, %highest")
                powers.append(text.value(f"call <16 x float> @exponential(<16 x float> {below})"))
            both = text.value(f"fadd <16 x float> {powers[0]}, {powers[1]}")
            text.add(f"  %totaln = fadd <16 x float> %total, {both}")
            self._keep(key, place, powers)
        place = self._block_of(self._room.sums, VECTOR, first)
        scaled = text.value(f"fmul <16 x float> {self._load(place)}, %factor")
        self._store(place, text.value(f"fadd <16 x float> {scaled}, %total"))

    def _keep(self, key: str, place: str, powers: list[str]) -> None:
        """Exponentials of two keys' scores as inputs of an instruction."""
        text = self._text
        if self._kind.inputs == 1:
            for index, power in enumerate(powers):
                self._store(text.at(place, "i8", str(index * VECTOR)), power)
            return
        halves = [text.value(narrowed("bfloat", power)) for power in powers]
        order = ", ".join(f"i32 {n}, i32 {n + LANES}" for n in range(LANES))
        pair = text.value(
            f"shufflevector <16 x bfloat> {halves[0]}, <16 x bfloat> {halves[1]},"
            f" <32 x i32> <{order}>"
        )
        place = self._scores_of(text.value(f"lshr i64 {key}, 1"))
        text.add(f"  store <32 x bfloat> {pair}, ptr {place}, align 64")

    def _add_values(self, values: str, first: str) -> None:
        """Values by what has become of the scores."""
        text, room, inputs = self._text, self._room, self._kind.inputs
        up = text.value(f"add i64 %some, {inputs - 1}")
        bound = text.value(f"sdiv i64 {up}, {inputs}")
        means = self._block_of(room.means, room.width * VECTOR, first)
        pairs = text.at("%room", "i8", str(room.pairs))
        for number in range(0, self._size, LANES):
            numbers = range(number, min(number + LANES, self._size))
            places = [text.at(means, "i8", str(index * VECTOR)) for index in numbers]
            sums = [f"%mean{index}" for index in numbers]
            begin = [text.value(f"fmul <16 x float> {self._load(at)}, %factor") for at in places]
            label = f"value{number}"
            with text.loop(label, "0", bound, sums=dict(zip(sums, begin, strict=True))) as step:
                power = text.value(
                    f"load {self._kind.vector}, ptr {self._scores_of(step)}, align 64"
                )
                if inputs == 1:
                    row = self._row(values, step, "%keyrow")
                else:
                    row = text.at(pairs, "i8", text.value(f"mul i64 {step}, {room.width * 4}"))
                for index, total in zip(numbers, sums, strict=True):
                    value = self._inputs(text.at(row, "i32", str(index)))
                    text.add(f"  {total}n = {self._kind.added(total, power, value)}")
            for place, total in zip(places, sums, strict=True):
                self._store(place, total)

    # Small things.

    def _sum(self, index: str, more: int) -> str:
        return self._text.value(f"add i64 {index}, {more}")

    def _least(self, one: str, other: str) -> str:
        return self._text.value(f"call i64 @llvm.smin.i64(i64 {one}, i64 {other})")

    def _row(self, pointer: str, index: str, stride: str) -> str:
        offset = self._text.value(f"mul i64 {index}, {stride}")
        return self._text.at(pointer, self._kind.element, offset)

    def _block_of(self, offset: int, size: int, first: str) -> str:
        """Of what begins at ``offset`` of the room, the part of the block of query ``first``."""
        text = self._text
        number = text.value(f"mul i64 {first}, {size // LANES}")
        return text.at(text.at("%room", "i8", str(offset)), "i8", number)

    def _scores_of(self, key: str) -> str:
        text = self._text
        scores = text.at("%room", "i8", str(self._room.scores))
        return text.at(scores, "i8", text.value(f"mul i64 {key}, {VECTOR}"))

    def _load(self, place: str) -> str:
        return self._text.value(f"load <16 x float>, ptr {place}, align 64")

    def _store(self, place: str, vector: str) -> None:
        self._text.add(f"  store <16 x float> {vector}, ptr {place}, align 64")

    def _part(self, row: str, kind: str, first: int, size: int) -> str:
        """16 of a row's ``size`` numbers from ``first`` on, with zeros for what is missing."""
        place = self._text.at(row, kind, str(first))
        return self._text.value(
            f"call <16 x {kind}> @llvm.masked.load.v16{kind}.p0(ptr {place}, i32 2,"
            f" <16 x i1> {rows.first(size - first)}, <16 x {kind}> zeroinitializer)"
        )

    def _inputs(self, place: str) -> str:
        """32 bits, whatever they are, for each of the 16 sums."""
        number = self._text.value(f"load i32, ptr {place}, align 2")
        spread = self._text.spread(number, "i32")
        return self._text.value(f"bitcast <16 x i32> {spread} to {self._kind.vector}")

    def _turned(self, rows: list[str], kind: str) -> list[str]:
        """The columns of 16 rows of 16: halves, quarters and so on change places."""
        for width in (8, 4, 2, 1):
            turned = list(rows)
            for index in (index for index in range(LANES) if not index & width):
                pair = f"<16 x {kind}> {rows[index]}, <16 x {kind}> {rows[index + width]}"
                lower = [n if not n & width else n - width + LANES for n in range(LANES)]
                for place, order in (
                    (index, lower),
                    (index + width, [n + width for n in lower]),
                ):
                    mask = ", ".join(f"i32 {n}" for n in order)
                    turned[place] = self._text.value(f"shufflevector {pair}, <16 x i32> <{mask}>")
            rows = turned
        return rows

    def _higher(self, one: str, other: str) -> str:
        """``other`` where either is NaN: what is wrong shows in the exponentials."""
        above = self._text.value(f"fcmp ogt <16 x float> {one}, {other}")
        return f"select <16 x i1> {above}, <16 x float> {one}, <16 x float> {other}"
