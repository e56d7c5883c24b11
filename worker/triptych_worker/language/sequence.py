"""One sequence in the engine: what it reads, what it has sampled, and whom it tells."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch

from triptych_worker.domain import Sampling
from triptych_worker.language.answer import Answer
from triptych_worker.language.pool import KvPool
from triptych_worker.language.prefix_cache import Prefix
from triptych_worker.language.scheduler import Chunk, Demand


@dataclass(frozen=True, slots=True)
class Placed:
    """Embedding rows [n, width] for the prompt's tokens from ``offset`` on."""

    offset: int
    rows: torch.Tensor


@dataclass(frozen=True, slots=True)
class Task:
    """What the engine is asked to do with one sequence.

    Either ``token_ids`` and ``positions`` [axes, prompt_tokens] are the prompt, of which nothing is
    computed but what ``prefix`` has found, or both are empty, keys and values of the prompt are
    loaded, and the answer goes on after ``output_token_ids``. ``first_only`` stops after one token,
    with the prompt's keys and values kept until the sequence is closed.
    """

    demand: Demand
    prompt_tokens: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    delta: int
    answer: Answer
    sampling: Sampling
    first_only: bool = False
    prefix: Prefix | None = None


@dataclass(slots=True)
class Sequence:
    """A task under way; written by the engine's thread only, once queued."""

    number: int
    task: Task
    placed: Items[Placed] = ()
    kv_start: int = 0
    queued: float = 0.0  # when its input was there
    started: float | None = field(default=None)  # when its first tokens went into a step
    seconds: float = 0.0  # its share of the steps over its prompt

    def computed(self, chunk: Chunk, seconds_per_token: float) -> None:
        """Books a chunk that was computed."""
        if chunk.start < self.task.prompt_tokens:
            self.seconds += seconds_per_token * chunk.length

    def find_prefix(self) -> int:
        """How many of its first tokens the cache has by now."""
        return self.task.prefix.look_again() if self.task.prefix is not None else 0

    def load_prefix(self, pool: KvPool) -> None:
        """Copies keys and values that the cache has to the sequence's range."""
        if self.task.prefix is not None:
            self.task.prefix.load(pool, self.kv_start)

    def keep_prefix(self, pool: KvPool) -> None:
        """Leaves keys and values to the cache: of all tokens but the last, which has none yet."""
        prefix = self.task.prefix
        if prefix is not None:
            seconds = self.seconds / (self.task.prompt_tokens - prefix.tokens)
            prefix.keep(pool, self.kv_start, self.task.answer.token_ids[:-1], seconds)

    def release_prefix(self) -> None:
        """Lets go what it has not copied."""
        if self.task.prefix is not None:
            self.task.prefix.release()

    def tokens(self, start: int, length: int) -> torch.Tensor:
        """Token ids [length] from ``start`` on, all of the prompt or all of the answer."""
        task = self.task
        if start + length <= task.prompt_tokens:
            return task.token_ids[start : start + length]
        output = task.answer.token_ids
        first = start - task.prompt_tokens
        return torch.tensor(output[first : first + length])

    def positions(self, start: int, length: int) -> torch.Tensor:
        """Position ids [axes, length] of the same tokens."""
        task = self.task
        if start + length <= task.prompt_tokens:
            return task.positions[:, start : start + length]
        first = start + task.delta
        return torch.arange(first, first + length).expand(task.positions.shape[0], -1)
