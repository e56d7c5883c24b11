"""Log probabilities as answers carry them, with the text and bytes of each token."""

from __future__ import annotations

from triptych_worker.domain import Logprobs, TokenLogprob
from triptych_worker.language.sampling import Chosen, Scored
from triptych_worker.language.vocabulary import Vocabulary


def logprobs(chosen: Chosen, vocabulary: Vocabulary) -> Logprobs | None:
    """What ``chosen`` says about probabilities; None if they were not asked for."""
    if chosen.scored is None:
        return None
    return Logprobs(
        _token(chosen.scored, vocabulary),
        tuple(_token(scored, vocabulary) for scored in chosen.top),
    )


def _token(scored: Scored, vocabulary: Vocabulary) -> TokenLogprob:
    return TokenLogprob(
        token_id=scored.token_id,
        text=vocabulary.text_of(scored.token_id),
        logprob=scored.logprob,
        utf8=vocabulary.bytes_of(scored.token_id),
    )
