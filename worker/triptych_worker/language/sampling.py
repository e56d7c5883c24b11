"""Choosing tokens from logits, without state: token i depends on its logits, the request and i."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

import torch

from triptych_worker.domain import Sampling

# Enough to hold the nucleus of nearly any distribution without sorting the whole vocabulary.
_FIRST_CANDIDATES: Final = 1024


@dataclass(frozen=True, slots=True)
class Draw:
    """The next token of one sequence is wanted: it is the answer's token number ``index``."""

    sampling: Sampling
    index: int


@dataclass(frozen=True, slots=True)
class Scored:
    """A token and its natural-log probability under the unmodified distribution."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """The token drawn; ``scored`` and ``top`` only if the request asked for log probabilities."""

    token_id: int
    scored: Scored | None = None
    top: tuple[Scored, ...] = ()


@torch.inference_mode()
def choose(logits: torch.Tensor, draws: Sequence[Draw], eos_ids: Set[int]) -> list[Chosen | None]:
    """One token for each row of ``logits`` [n, vocabulary]; None where a row is not finite.

    Changes ``logits``: the end of an answer is suppressed below its ``min_tokens``.
    """
    scores = {
        row: _log_probabilities(logits[row])
        for row, draw in enumerate(draws)
        if draw.sampling.logprobs
    }
    _suppress_end(logits, draws, eos_ids)
    # NaN wins an argmax, and so does infinity: looking at the winners finds both.
    best = logits.argmax(dim=-1)
    peaks = logits.gather(1, best.unsqueeze(1)).squeeze(1).tolist()
    chosen: list[Chosen | None] = []
    for row, (draw, token_id, peak) in enumerate(zip(draws, best.tolist(), peaks, strict=True)):
        if not -float("inf") < peak < float("inf"):
            chosen.append(None)
            continue
        if draw.sampling.temperature > 0:
            token_id = _sample(logits[row], draw)  # noqa: PLW2901 - drawn instead of the best
        chosen.append(_scored(token_id, draw.sampling, scores.get(row)))
    return chosen


def _suppress_end(logits: torch.Tensor, draws: Sequence[Draw], eos_ids: Set[int]) -> None:
    rows = [row for row, draw in enumerate(draws) if draw.index < draw.sampling.min_tokens]
    ends = [token_id for token_id in eos_ids if token_id < logits.shape[1]]
    for row in rows if ends else ():
        logits[row, ends] = -float("inf")


def _log_probabilities(logits: torch.Tensor) -> torch.Tensor:
    return logits.float().log_softmax(dim=-1)


def _scored(token_id: int, sampling: Sampling, scores: torch.Tensor | None) -> Chosen:
    if scores is None:
        return Chosen(token_id)
    top: tuple[Scored, ...] = ()
    if sampling.top_logprobs:
        values, ids = scores.topk(min(sampling.top_logprobs, scores.shape[0]))
        top = tuple(map(Scored, ids.tolist(), values.tolist()))
    return Chosen(token_id, Scored(token_id, float(scores[token_id])), top)


def _sample(logits: torch.Tensor, draw: Draw) -> int:
    """Draws by temperature, then the ``top_k`` most likely, then the nucleus of ``top_p``."""
    sampling = draw.sampling
    logits = logits.float()
    probabilities = ((logits - logits.max()) / sampling.temperature).softmax(dim=-1)
    point = _uniform(sampling.seed, draw.index)
    if not sampling.top_k and sampling.top_p >= 1:
        return _pick(probabilities, point)
    if sampling.top_k:
        likely, ids = probabilities.topk(min(sampling.top_k, probabilities.shape[0]))
        likely = likely / likely.sum()
    else:
        likely, ids = _descending(probabilities, sampling.top_p)
    if sampling.top_p < 1:
        before = likely.cumsum(0) - likely
        likely = likely[before < sampling.top_p]
    return int(ids[_pick(likely, point)])


def _descending(probabilities: torch.Tensor, mass: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The most likely tokens in order, at least ``mass`` of them."""
    likely, ids = probabilities.topk(min(_FIRST_CANDIDATES, probabilities.shape[0]))
    if float(likely.sum()) < mass:
        likely, ids = probabilities.sort(descending=True)
    return likely, ids


def _pick(weights: torch.Tensor, point: float) -> int:
    """The index at which the running sum of ``weights`` passes ``point`` of the whole."""
    running = weights.cumsum(0, dtype=torch.float64)
    index = int(torch.searchsorted(running, running[-1:] * point, right=True))
    if index < weights.shape[0]:
        return index
    return int(weights.nonzero()[-1])  # the point was rounded up to the whole


def _uniform(seed: int, index: int) -> float:
    """A number in [0, 1) that is the same for the same seed and index everywhere."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
