"""What a prepared request looks like to the workers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from triptych_contract.errors import PromptTooLong
from triptych_contract.v1.common_pb2 import Handle, MediaItem, Prompt, Sampling, Span
from triptych_contract.v1.stages_pb2 import GenerateRequest

from triptych_gateway.conversation import SamplingWish
from triptych_gateway.pipeline.pictures import PreparedPicture
from triptych_gateway.processors.prompts import ExpandedPrompt

# What an answer may have if its request does not say, were the context longer.
_DEFAULT_MOST_TOKENS: Final = 4096


@dataclass(frozen=True, slots=True)
class Prepared:
    """All of a request that does not depend on which pods serve it."""

    request_id: str
    prompt: ExpandedPrompt
    pictures: Sequence[PreparedPicture]
    fingerprint: str  # of the encoder that was up when the pictures were prepared
    sampling: Sampling
    salt: bytes  # of the tenant

    def generate_request(
        self, fingerprint: str, model_digest: str, handles: Sequence[Handle]
    ) -> GenerateRequest:
        """The request for prefill or fused workers, with a handle per picture."""
        media = [
            MediaItem(
                embedding=handle,
                spans=[Span(offset=offset, length=length) for offset, length in picture.runs],
                grid=picture.grid,
            )
            for handle, picture in zip(handles, self.prompt.pictures, strict=True)
        ]
        return GenerateRequest(
            request_id=self.request_id,
            fingerprint=fingerprint if media else "",
            model_digest=model_digest,
            prompt=Prompt(token_ids=self.prompt.token_ids, media=media),
            sampling=self.sampling,
            tenant_salt=self.salt,
        )


def bounded_sampling(wish: SamplingWish, prompt_tokens: int, context_tokens: int) -> Sampling:
    """The client's wishes with every open value filled in: the length from what the context leaves,
    the seed at random, so that a repeated attempt gives the same answer.

    Args:
        wish: as the client said.
        prompt_tokens: of the expanded prompt.
        context_tokens: that prompt and answer may have together; 0 if nobody knows.

    Raises:
        PromptTooLong: prompt and answer do not fit.
    """
    room = context_tokens - prompt_tokens if context_tokens else _DEFAULT_MOST_TOKENS
    if room < 1:
        raise PromptTooLong(
            f"the prompt has {prompt_tokens} tokens, which leaves no room for an answer in the "
            f"model's context of {context_tokens}; shorten it or send smaller or fewer images"
        )
    most = wish.max_tokens or max(min(room, _DEFAULT_MOST_TOKENS), wish.min_tokens)
    if context_tokens and most > room:
        raise PromptTooLong(
            f"the prompt has {prompt_tokens} tokens and the answer may have {most}, together more "
            f"than the model's context of {context_tokens}; shorten one of them"
        )
    return Sampling(
        temperature=wish.temperature,
        top_p=wish.top_p,
        top_k=wish.top_k,
        seed=secrets.randbits(64) if wish.seed is None else wish.seed,
        max_tokens=most,
        min_tokens=wish.min_tokens,
        stop=wish.stop,
        ignore_eos=wish.ignore_eos,
        logprobs=wish.logprobs,
        top_logprobs=wish.top_logprobs,
    )
