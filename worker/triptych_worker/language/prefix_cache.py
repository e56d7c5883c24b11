"""Keys and values of prompts' beginnings, so that equal ones are not computed twice.

Blocks lie in the memory of the device that the pool is in: what a hit costs is one copy there. They
are bounded in bytes together, and those that a sequence is about to copy stay until it has.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from triptych_contract.names import Cache

from triptych_worker.caches.lru import ByteLru
from triptych_worker.domain import CacheStats, Holding, Prompt
from triptych_worker.language.layout import KvLayout
from triptych_worker.language.pool import KvPool
from triptych_worker.language.prefixes import BLOCK_TOKENS, Block, chain


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One block's keys and values, [layers, 2, kv_heads, BLOCK_TOKENS, head_dim]."""

    block: Block
    kv: torch.Tensor


class PrefixCache:
    """Blocks by key. Any thread may call any method, but only one ``keep``.

    One lock guards the books; keys and values are copied outside of it. A block is used after all
    that stand before it: of one sequence, the last blocks go first.
    """

    def __init__(self, layout: KvLayout, capacity_bytes: int) -> None:
        self._block_bytes = BLOCK_TOKENS * layout.bytes_per_token
        self._lock = threading.Lock()
        self._pins: Counter[Held] = Counter()
        self._blocks: ByteLru[bytes, Held] = ByteLru(
            Cache.KV_PREFIX, capacity_bytes, pinned=self._pins.__contains__
        )
        self._misses = 0

    @property
    def capacity_bytes(self) -> int:
        """Most that is held; 0 switches the cache off."""
        return self._blocks.capacity_bytes

    def find(self, blocks: Sequence[Block]) -> tuple[Held, ...]:
        """The longest beginning of ``blocks`` that is here, which stays until it is released. Each
        counts as a hit."""
        with self._lock:
            held = tuple(self._known(blocks))
            for each in reversed(held):  # the first block is the most recently used
                self._blocks.get(each.block.key)
            self._pins.update(held)
        return held

    def missed(self, blocks: int) -> None:
        """Counts blocks that had to be computed."""
        with self._lock:
            self._misses += blocks

    def keep(self, blocks: Sequence[Block], pool: KvPool, start: int, seconds: float) -> None:
        """Copies out of the pool what is not here of a sequence's first blocks.

        Args:
            blocks: from the sequence's first token on.
            pool: holds their keys and values.
            start: of the sequence's range.
            seconds: that computing one block took.
        """
        fitting = blocks[: self.capacity_bytes // self._block_bytes]
        for number, block in reversed(list(enumerate(fitting))):
            if self._makes_room(block):
                kv = _copied(pool, start + number * BLOCK_TOKENS)
                with self._lock:
                    self._blocks.put(
                        block.key,
                        Held(block, kv),
                        fingerprint=block.fingerprint,
                        size_bytes=self._block_bytes,
                        seconds=seconds,
                    )

    def release(self, held: Sequence[Held]) -> None:
        """Ends what ``find`` began."""
        with self._lock:
            self._pins -= Counter(held)
            for each in held:
                stale = not self._blocks.admits(each.block.fingerprint)
                if stale and each not in self._pins:
                    self._blocks.remove(each.block.key)

    def holdings(self) -> Sequence[Holding]:
        """What is held, by the encoder it depends on."""
        with self._lock:
            return self._blocks.holdings()

    def drop_others(self, keep: str) -> tuple[int, int]:
        """Drops what depends on another encoder; blocks and bytes that went now. The rest goes when
        it is released."""
        with self._lock:
            dropped = self._blocks.drop_others(keep)
        return len(dropped), len(dropped) * self._block_bytes

    def stats(self) -> CacheStats:
        """Running totals, in blocks."""
        with self._lock:
            return replace(self._blocks.stats(), misses=self._misses)

    def check_integrity(self) -> None:
        """Raises RuntimeError if the books disagree."""
        with self._lock:
            self._blocks.check_integrity()
            if not set(self._pins) <= set(self._blocks.values()):
                raise RuntimeError("a block that is about to be copied was dropped")

    def _known(self, blocks: Sequence[Block]) -> Iterator[Held]:
        for block in blocks:
            held = self._blocks.peek(block.key)
            if held is None or not self._blocks.admits(block.fingerprint):
                return
            yield held

    def _makes_room(self, block: Block) -> bool:
        """Whether a block is to be copied in, for which there is room then."""
        blocks = self._blocks
        with self._lock:
            if block.key in blocks:
                blocks.touch(block.key)
                return False
            if not blocks.admits(block.fingerprint):
                return False
            while blocks.bytes + self._block_bytes > blocks.capacity_bytes:
                if blocks.evict() is None:
                    return False
            return True


class Prefix:
    """One sequence's part in the cache: what it finds there, and what it leaves.

    Args:
        cache: shared by all sequences.
        prompt: of the sequence. Of what is found its last token is never part: a next one can only
            be sampled from a token that is computed.
        salt: of the tenant; without one nothing is found and nothing is kept.
    """

    def __init__(self, cache: PrefixCache, prompt: Prompt, salt: bytes) -> None:
        self._cache = cache
        self._prompt = prompt
        self._salt = salt if cache.capacity_bytes else b""
        self._blocks = chain(prompt.token_ids, prompt.media, salt) if self._salt else ()
        self._wanted = self._blocks[: (len(prompt.token_ids) - 1) // BLOCK_TOKENS]
        self._found = cache.find(self._wanted)
        self._count = len(self._found)

    @property
    def tokens(self) -> int:
        """How many need not be computed."""
        return self._count * BLOCK_TOKENS

    def look_again(self) -> int:
        """Finds what has come since, before anything is computed; see ``tokens``."""
        more = self._cache.find(self._wanted[self._count :])
        self._found += more
        self._count += len(more)
        return self.tokens

    def load(self, pool: KvPool, start: int) -> None:
        """Copies what was found to the range that begins at ``start``, and releases it; the rest of
        the prompt is computed now."""
        with torch.inference_mode():
            for number, held in enumerate(self._found):
                pool.heads(start + number * BLOCK_TOKENS, BLOCK_TOKENS).copy_(held.kv)
        self.release()
        self._cache.missed(len(self._wanted) - self._count)

    def keep(self, pool: KvPool, start: int, output: Sequence[int], seconds: float) -> None:
        """Leaves the sequence's blocks for others.

        Args:
            pool: holds the sequence's keys and values.
            start: of its range.
            output: tokens after the prompt whose keys and values are there too.
            seconds: that computing one token of a prompt takes.
        """
        if self._salt:
            tokens, media = [*self._prompt.token_ids, *output], self._prompt.media
            self._blocks = chain(tokens, media, self._salt, known=self._blocks)
            self._cache.keep(self._blocks, pool, start, seconds * BLOCK_TOKENS)

    def release(self) -> None:
        """Lets go what was found; once is enough."""
        found, self._found = self._found, ()
        self._cache.release(found)


@torch.inference_mode()
def _copied(pool: KvPool, start: int) -> torch.Tensor:
    return pool.heads(start, BLOCK_TOKENS).clone(memory_format=torch.contiguous_format)
