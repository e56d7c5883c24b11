"""From a conversation to the tokens of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from triptych_contract.errors import Unavailable
from triptych_contract.names import Count, Tier, Topology
from triptych_contract.v1.common_pb2 import TokenEvent

from triptych_gateway.conversation import Conversation
from triptych_gateway.deadlines import Deadline
from triptych_gateway.journal import Journal
from triptych_gateway.pipeline.encoder_loss import EncoderLoss
from triptych_gateway.pipeline.generation import Generation
from triptych_gateway.pipeline.pictures import Pictures, PreparedPicture, Scope
from triptych_gateway.pipeline.requests import Prepared, bounded_sampling
from triptych_gateway.processors.prompts import PromptBuilder
from triptych_gateway.tiers.fleet import missing_tiers
from triptych_gateway.tiers.pools import Pools


class Answering:
    """Prepares requests and streams their answers."""

    def __init__(
        self,
        *,
        pools: Pools,
        pictures: Pictures,
        prompts: PromptBuilder,
        encoder_loss: EncoderLoss,
        generation: Generation,
        threads: ThreadPoolExecutor,
        topology: Topology,
    ) -> None:
        self._pools = pools
        self._pictures = pictures
        self._prompts = prompts
        self._encoder_loss = encoder_loss
        self._generation = generation
        self._threads = threads
        self._topology = topology

    async def prepare(
        self, conversation: Conversation, deadline: Deadline, journal: Journal
    ) -> Prepared:
        """Everything that is done before a worker is asked for an answer.

        Raises:
            Unavailable: a tier that the request needs is down.
            InvalidRequest, PromptTooLong, TooLarge, DeadlineExceeded.
        """
        self._require_language()
        images = list(conversation.images())
        fingerprint, pictures = "", list[PreparedPicture]()
        if images:
            fingerprint = await self._encoder_loss.fingerprint(deadline)
            pictures = await self._pictures.prepare(
                images, Scope(fingerprint, conversation.salt), journal
            )
        context_tokens = self._pools.route.context_tokens
        prompt = await asyncio.get_running_loop().run_in_executor(
            self._threads,
            self._prompts.build,
            conversation.messages,
            [picture.layout for picture in pictures],
            context_tokens,
        )
        journal.count(Count.PROMPT_TOKENS, len(prompt.token_ids))
        return Prepared(
            request_id=conversation.request_id,
            prompt=prompt,
            pictures=pictures,
            fingerprint=fingerprint,
            salt=conversation.salt,
            sampling=bounded_sampling(conversation.sampling, len(prompt.token_ids), context_tokens),
        )

    def stream(
        self, prepared: Prepared, deadline: Deadline, journal: Journal
    ) -> AsyncGenerator[TokenEvent, None]:
        """The tokens of the answer; close the generator to stop them on every tier."""
        return self._generation.stream(prepared, deadline, journal)

    def _require_language(self) -> None:
        missing = missing_tiers(self._pools.route, self._topology)
        down = [str(tier) for tier in missing if tier is not Tier.ENCODER]
        if down:
            raise Unavailable(f"no pod of tier {' and '.join(down)} is up", retry_after=5.0)
