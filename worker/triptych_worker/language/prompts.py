"""Checks of what a request asks for, before anything is spent on it."""

from __future__ import annotations

import math

from triptych_contract.errors import InvalidRequest

from triptych_worker.domain import Prompt, Sampling

MAX_TOP_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 512


def check_prompt(prompt: Prompt, vocab_size: int) -> None:
    """Raises InvalidRequest unless tokens are of the vocabulary and spans are apart, in order."""
    if not prompt.token_ids:
        raise InvalidRequest("the prompt is empty; send at least one token")
    if min(prompt.token_ids) < 0 or max(prompt.token_ids) >= vocab_size:
        raise InvalidRequest(
            f"a prompt token is outside the vocabulary of {vocab_size};"
            " use the tokenizer of the served model"
        )
    end = 0
    for span in (span for item in prompt.media for span in item.spans):
        if span.length <= 0 or span.offset < end:
            raise InvalidRequest(
                f"span at {span.offset} of {span.length} tokens is empty or overlaps the one"
                " before; send media in prompt order"
            )
        end = span.offset + span.length
    if end > len(prompt.token_ids):
        raise InvalidRequest(
            f"a span ends at {end}, after the prompt's {len(prompt.token_ids)} tokens"
        )


def check_sampling(sampling: Sampling) -> None:
    """Raises InvalidRequest naming the first parameter that is out of its range."""
    for name, holds in _RANGES.items():
        value = getattr(sampling, name)
        if not holds(value):
            raise InvalidRequest(f"sampling parameter {name}={value!r} is out of range")
    if len(sampling.stop) > MAX_STOP_STRINGS:
        raise InvalidRequest(f"at most {MAX_STOP_STRINGS} stop strings are taken")
    if any(not 0 < len(stop) <= MAX_STOP_CHARACTERS for stop in sampling.stop):
        raise InvalidRequest(f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters")


_RANGES = {
    "temperature": lambda value: math.isfinite(value) and value >= 0,
    "top_p": lambda value: 0 < value <= 1,
    "top_k": lambda value: value >= 0,
    "max_tokens": lambda value: value >= 1,
    "min_tokens": lambda value: value >= 0,
    "top_logprobs": lambda value: 0 <= value <= MAX_TOP_LOGPROBS,
}
