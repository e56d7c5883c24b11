"""Which tokens of which sequences the next forward pass computes. Pure: no tensors, no clock.

A sequence knows its prompt and the tokens sampled so far, and has computed keys and values of a
first part of them. A step computes some of the rest; when nothing is left, the next token is
sampled. A sequence gets one range of the KV pool for all that it may ever need before it runs, so
nothing is preempted and nothing waits for memory while it holds some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from triptych_contract.errors import Overloaded, PromptTooLong

from triptych_worker.caches.ranges import RangeAllocator
from triptych_worker.domain import Load


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds, all in tokens but ``max_running``, which counts sequences."""

    context_tokens: int
    kv_tokens: int
    max_running: int
    queue_tokens: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What a sequence needs.

    ``known`` tokens are given (prompt, and output of another process). Of the first of them,
    ``computed`` come with keys and values, or ``cached`` are copied to the range before it is used;
    ``reserve`` is the most whose keys and values will be held.
    """

    known: int
    computed: int
    reserve: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute ``length`` tokens from ``start`` on; ``samples``: and sample the next one."""

    sequence: int
    start: int
    length: int
    samples: bool


@dataclass(frozen=True, slots=True)
class Admitted:
    """A sequence got the range of the pool that starts at ``kv_start``."""

    sequence: int
    kv_start: int


class _State(Enum):
    OPEN = auto()  # counted; its input is still on the way
    QUEUED = auto()  # waits for a range
    LOADING = auto()  # has a range, which its computed tokens are being copied into
    RUNNING = auto()
    PARKED = auto()  # keeps its range, computes nothing


@dataclass(slots=True)
class _Entry:
    demand: Demand
    known: int
    computed: int
    cached: int  # of these, what a cache has
    state: _State = _State.OPEN
    kv_start: int = 0

    @property
    def remaining(self) -> int:
        return self.known - self.computed

    @property
    def awaited(self) -> int:
        """Tokens that count while it waits."""
        return self.known - self.cached

    @property
    def waits(self) -> bool:
        return self.state in {_State.OPEN, _State.QUEUED}


def answer_tokens(prompt_tokens: int, max_tokens: int, context_tokens: int) -> int:
    """How many tokens an answer may have: ``max_tokens``, or what the context leaves.

    Raises:
        PromptTooLong: nothing is left.
    """
    left = context_tokens - prompt_tokens
    if left < 1:
        raise PromptTooLong(
            f"the prompt has {prompt_tokens} tokens, the model's context is {context_tokens} for"
            " prompt and answer; shorten the prompt"
        )
    return min(max_tokens, left)


class Scheduler:
    """Sequences by number. Not thread-safe; ``plan``'s admissions and all verbs mutate."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ranges = RangeAllocator(limits.kv_tokens)
        self._entries: dict[int, _Entry] = {}  # in order of arrival

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._entries

    def open(self, sequence: int, demand: Demand, retry_after: float = 0.0) -> None:
        """Takes a sequence whose input may still be on the way.

        Raises:
            PromptTooLong: it could never get a range.
            Overloaded: too many tokens wait already; come back after ``retry_after`` seconds.
        """
        if demand.reserve > self._limits.kv_tokens:
            raise PromptTooLong(
                f"prompt and answer need {demand.reserve} tokens of KV memory, this worker has"
                f" {self._limits.kv_tokens}; shorten the prompt or lower max_tokens"
            )
        waiting = sum(entry.awaited for entry in self._entries.values() if entry.waits)
        if waiting and waiting + demand.known - demand.cached > self._limits.queue_tokens:
            raise Overloaded(
                f"{waiting} tokens wait, the bound is {self._limits.queue_tokens}; come back later",
                retry_after=retry_after,
            )
        computed = demand.computed + demand.cached
        self._entries[sequence] = _Entry(demand, demand.known, computed, demand.cached)

    def queue(self, sequence: int) -> None:
        """The sequence's input is here: it may get a range."""
        self._entries[sequence].state = _State.QUEUED

    def loaded(self, sequence: int) -> None:
        """The sequence's computed keys and values are in its range."""
        self._entries[sequence].state = _State.RUNNING

    def unbegun(self) -> list[int]:
        """Sequences that have a range, and of whose prompts nothing has been computed yet."""
        return [
            sequence
            for sequence, entry in self._entries.items()
            if entry.state is _State.RUNNING
            and not entry.demand.computed
            and entry.computed == entry.cached
        ]

    def skip(self, sequence: int, tokens: int) -> None:
        """A cache has the first ``tokens`` of an unbegun sequence by now."""
        entry = self._entries[sequence]
        entry.computed = entry.cached = tokens

    def park(self, sequence: int) -> None:
        """The sequence computes nothing more, but its range is still read."""
        self._entries[sequence].state = _State.PARKED

    def remove(self, sequence: int) -> None:
        """Forgets the sequence and frees its range."""
        entry = self._entries.pop(sequence)
        if not entry.waits:
            self._ranges.free(entry.kv_start)

    def admit(self) -> list[Admitted]:
        """Gives ranges to queued sequences, oldest first; none overtakes one that does not fit."""
        admitted = []
        running = sum(not entry.waits for entry in self._entries.values())
        for sequence, entry in self._entries.items():
            if entry.state is not _State.QUEUED:
                continue
            if running >= self._limits.max_running:
                break
            start = self._ranges.allocate(entry.demand.reserve)
            if start is None:
                break
            entry.kv_start = start
            entry.state = _State.LOADING if entry.demand.computed else _State.RUNNING
            admitted.append(Admitted(sequence, start))
            running += 1
        return admitted

    def plan(self) -> tuple[Chunk, ...]:
        """The next step: each sequence with one token left, then prompts within the budget."""
        running = [
            (sequence, entry)
            for sequence, entry in self._entries.items()
            if entry.state is _State.RUNNING
        ]
        lengths = {sequence: 1 for sequence, entry in running if entry.remaining == 1}
        prompts = [
            (sequence, entry.remaining) for sequence, entry in running if entry.remaining > 1
        ]
        lengths |= share(prompts, self._limits.chunk_tokens)
        return tuple(self._chunk(sequence, length) for sequence, length in lengths.items())

    def advance(self, chunks: Iterable[Chunk]) -> None:
        """The chunks were computed; those that sample know one token more."""
        for chunk in chunks:
            entry = self._entries[chunk.sequence]
            entry.computed += chunk.length
            entry.known += chunk.samples

    def load(self) -> Load:
        """What there is to do."""
        entries = self._entries.values()
        return Load(
            running=sum(not entry.waits for entry in entries),
            waiting=sum(entry.waits for entry in entries),
            backlog_tokens=sum(
                entry.remaining for entry in entries if entry.waits or entry.remaining > 1
            ),
            kv_tokens_used=self._ranges.used,
        )

    def check_integrity(self) -> None:
        """Raises RuntimeError if ranges and sequences do not account for each other."""
        self._ranges.check_integrity()
        held = sum(
            self._ranges.length_of(entry.kv_start)
            for entry in self._entries.values()
            if not entry.waits
        )
        if held != self._ranges.used:
            raise RuntimeError(f"sequences hold {held} tokens, {self._ranges.used} are handed out")

    def _chunk(self, sequence: int, length: int) -> Chunk:
        entry = self._entries[sequence]
        return Chunk(sequence, entry.computed, length, samples=length == entry.remaining)


def share(prompts: Sequence[tuple[int, int]], budget: int) -> dict[int, int]:
    """Splits ``budget`` tokens over prompts, given as (sequence, tokens left) in order of arrival.

    The oldest prompt is sure of half, so a long one always gets on; the rest goes to whoever is
    done soonest, so a short one never waits behind it.
    """
    shares: dict[int, int] = {}
    if not prompts:
        return shares
    oldest, left = prompts[0]
    shares[oldest] = min(left, (budget + 1) // 2)
    budget -= shares[oldest]
    for sequence, left in sorted(prompts, key=lambda prompt: prompt[1]):
        more = min(left - shares.get(sequence, 0), budget)
        if more > 0:
            shares[sequence] = shares.get(sequence, 0) + more
            budget -= more
    return shares
