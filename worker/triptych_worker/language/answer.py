"""One answer as it grows: its text, and the moment and the reason it ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set

from triptych_worker.domain import FinishReason, Logprobs, Sampling, TokenEvent
from triptych_worker.language.text import Decode, Detokenizer, StopMatcher


class Answer:
    """Turns sampled tokens into events.

    Args:
        sampling: what the request asked for.
        max_tokens: most tokens, the request's bound or what is left of the context.
        eos_ids: tokens that end an answer.
        decode: token ids to text, special tokens skipped.
    """

    def __init__(
        self, sampling: Sampling, max_tokens: int, eos_ids: Set[int], decode: Decode
    ) -> None:
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._eos_ids = frozenset() if sampling.ignore_eos else eos_ids
        self._detokenizer = Detokenizer(decode)
        self._stops = StopMatcher(sampling.stop)
        self.token_ids: list[int] = []

    def resume(self, token_ids: Sequence[int]) -> None:
        """Takes over tokens whose text another process has already sent."""
        for token_id in token_ids:
            self.push(token_id)

    def push(self, token_id: int, logprobs: Logprobs | None = None) -> TokenEvent:
        """The event of the next token; with a finish reason it is the last."""
        self.token_ids.append(token_id)
        text, reason = self._text_of(token_id)
        if reason is None and len(self.token_ids) >= self._max_tokens:
            reason = FinishReason.LENGTH
            text += self._rest()
        return TokenEvent(token_id, text, logprobs, reason)

    def _text_of(self, token_id: int) -> tuple[str, FinishReason | None]:
        if token_id in self._eos_ids:
            return self._rest(), FinishReason.STOP
        text, stopped = self._match(self._detokenizer.push(token_id))
        return text, FinishReason.STOP if stopped else None

    def _match(self, text: str) -> tuple[str, bool]:
        if len(self.token_ids) < self._sampling.min_tokens:
            return text, False
        return self._stops.push(text)

    def _rest(self) -> str:
        """Incomplete characters and held-back text; a stop string may still hide in them."""
        text, stopped = self._match(self._detokenizer.flush())
        return text if stopped else text + self._stops.flush()
