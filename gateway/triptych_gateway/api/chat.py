"""``POST /v1/chat/completions``."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send
from triptych_contract.config import GatewayConfig
from triptych_contract.errors import (
    DeadlineExceeded,
    InternalError,
    NotFound,
    Overloaded,
    TriptychError,
)
from triptych_contract.names import FINGERPRINT_HEADER, REQUEST_ID_HEADER, Count
from triptych_contract.v1.common_pb2 import TokenEvent

from triptych_gateway.api.body import bounded_body
from triptych_gateway.api.disconnect import until_gone
from triptych_gateway.api.errors import body_of, headers_of, status_of
from triptych_gateway.api.replies import reply_error, reply_json, start_events
from triptych_gateway.api.requests import ChatRequest, parse_chat_request
from triptych_gateway.api.responses import Envelope, Usage, event_of
from triptych_gateway.api.tenants import salt_of
from triptych_gateway.deadlines import Deadline
from triptych_gateway.journal import Journal
from triptych_gateway.media.budget import ByteBudget
from triptych_gateway.metrics import GatewayMetrics
from triptych_gateway.pipeline.answering import Answering
from triptych_gateway.pipeline.requests import Prepared

_LOG: Final = logging.getLogger(__name__)
_TIMES_HEADER: Final = "x-triptych-times"
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_THREAD_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class _Exchange:
    """One request and how far its reply has come."""

    request: Request
    send: Send
    request_id: str
    deadline: Deadline
    began: float = field(default_factory=time.perf_counter)
    journal: Journal = field(default_factory=Journal)
    started: bool = False  # the reply's status is out

    @property
    def wants_times(self) -> bool:
        """Whether the client asked for the time of each stage."""
        return self.request.headers.get(_TIMES_HEADER) == "1"

    @property
    def extension(self) -> dict[str, object] | None:
        """What is added to the reply for such a client."""
        return self.journal.as_json() if self.wants_times else None


class ChatCompletions:
    """The endpoint, as an ASGI application: it must see the client leave while it works."""

    def __init__(
        self,
        config: GatewayConfig,
        answering: Answering,
        metrics: GatewayMetrics,
        bodies: ByteBudget,
    ) -> None:
        self._config = config
        self._answering = answering
        self._metrics = metrics
        self._bodies = bodies
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self) -> None:
        """Returns once no request is running."""
        await self._idle.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; ends early when its client leaves."""
        exchange = _Exchange(
            request=Request(scope, receive),
            send=send,
            request_id=_request_id(scope),
            deadline=Deadline.after(self._config.request_seconds),
        )
        self._enter()
        outcome = "cancelled"
        try:
            outcome = await self._guarded(exchange)
        finally:
            self._leave()
            self._metrics.finished(outcome)
            _LOG.info(
                "request %s: %s after %.3f s by %s",
                exchange.request_id,
                outcome,
                time.perf_counter() - exchange.began,
                " ".join(exchange.journal.pods) or "no pod",
            )

    def _enter(self) -> None:
        self._running += 1
        self._idle.clear()
        self._metrics.running.set(self._running)

    def _leave(self) -> None:
        self._running -= 1
        self._metrics.running.set(self._running)
        if not self._running:
            self._idle.set()

    async def _guarded(self, exchange: _Exchange) -> str:
        """Turns every error into a reply; the outcome for the metrics."""
        try:
            async with asyncio.timeout(self._config.request_seconds):
                return await self._answered(exchange)
        except TriptychError as error:
            return await _failed(exchange, error)
        except ClientDisconnect:
            return "cancelled"
        except TimeoutError:
            return await _failed(exchange, DeadlineExceeded("the request took longer than it may"))
        except Exception:  # noqa: BLE001 - a bug of ours ends one request, not the gateway
            _LOG.exception("request %s failed unexpectedly", exchange.request_id)
            return await _failed(
                exchange, InternalError("internal error; the gateway's log has the traceback")
            )

    async def _answered(self, exchange: _Exchange) -> str:
        if self._running > self._config.max_concurrent:
            raise Overloaded(
                f"{self._config.max_concurrent} requests are running already", retry_after=1.0
            )
        limit = self._config.max_body_bytes
        async with bounded_body(exchange.request, limit, self._bodies) as body:
            salt = salt_of(exchange.request.headers, self._config.media.tenant_header)
            wanted = await _parsed(body, exchange.request_id, salt)
            if wanted.model != self._config.model.served_name:
                raise NotFound(
                    f"model {wanted.model!r:.200} does not exist; there is "
                    f"{self._config.model.served_name!r}"
                )
            replied = await until_gone(exchange.request.receive, self._replied(exchange, wanted))
            return "ok" if replied else "cancelled"

    async def _replied(self, exchange: _Exchange, wanted: ChatRequest) -> None:
        prepared = await self._answering.prepare(
            wanted.conversation, exchange.deadline, exchange.journal
        )
        envelope = Envelope(exchange.request_id, wanted.model, wanted.token_ids)
        events = self._answering.stream(prepared, exchange.deadline, exchange.journal)
        async with aclosing(self._measured(exchange, prepared, events)) as measured:
            if wanted.stream:
                await self._reply_stream(exchange, prepared, envelope, measured, wanted)
            else:
                await self._reply_whole(exchange, prepared, envelope, measured)

    async def _measured(
        self, exchange: _Exchange, prepared: Prepared, events: AsyncGenerator[TokenEvent, None]
    ) -> AsyncGenerator[TokenEvent, None]:
        async with aclosing(events):
            async for event in events:
                if not exchange.journal.counts[Count.OUTPUT_TOKENS]:
                    seconds = time.perf_counter() - exchange.began
                    self._metrics.first_token(
                        seconds, exchange.journal, multimodal=bool(prepared.pictures)
                    )
                exchange.journal.count(Count.OUTPUT_TOKENS)
                yield event

    async def _reply_whole(
        self,
        exchange: _Exchange,
        prepared: Prepared,
        envelope: Envelope,
        events: AsyncGenerator[TokenEvent, None],
    ) -> None:
        tokens = [event async for event in events]
        body = envelope.whole(tokens, _usage(exchange, prepared), exchange.extension)
        exchange.started = True
        await reply_json(exchange.send, 200, body, _headers(exchange, prepared))

    async def _reply_stream(
        self,
        exchange: _Exchange,
        prepared: Prepared,
        envelope: Envelope,
        events: AsyncGenerator[TokenEvent, None],
        wanted: ChatRequest,
    ) -> None:
        """The status goes out with the first token, so that errors before it have their own."""
        async for event in events:
            if not exchange.started:
                exchange.started = True
                await start_events(exchange.send, _headers(exchange, prepared))
                await _write(exchange, envelope.opening())
            chunk = envelope.chunk(event)
            if chunk is not None:
                await _write(exchange, chunk)
        usage = _usage(exchange, prepared) if wanted.include_usage else None
        await _write(exchange, envelope.closing(usage, exchange.extension), more=False)


async def _parsed(body: bytes, request_id: str, salt: bytes) -> ChatRequest:
    if len(body) < _THREAD_BYTES:
        return parse_chat_request(body, request_id, salt)
    return await asyncio.to_thread(parse_chat_request, body, request_id, salt)


async def _write(exchange: _Exchange, chunk: bytes, *, more: bool = True) -> None:
    await exchange.send({"type": "http.response.body", "body": chunk, "more_body": more})


async def _failed(exchange: _Exchange, error: TriptychError) -> str:
    """Says what went wrong, as the reply or at the end of a stream that has begun."""
    if exchange.started:
        await _write(exchange, event_of(body_of(error)), more=False)
    else:
        headers = headers_of(error) | {REQUEST_ID_HEADER: exchange.request_id}
        await reply_error(exchange.send, status_of(error), body_of(error), headers)
    return str(error.reason)


def _usage(exchange: _Exchange, prepared: Prepared) -> Usage:
    counts = exchange.journal.counts
    return Usage(
        prompt_tokens=len(prepared.prompt.token_ids),
        completion_tokens=counts[Count.OUTPUT_TOKENS],
        # What was prefilled again after a failure counts each time.
        cached_tokens=min(counts[Count.KV_PREFIX_TOKENS], len(prepared.prompt.token_ids)),
    )


def _headers(exchange: _Exchange, prepared: Prepared) -> dict[str, str]:
    headers = {REQUEST_ID_HEADER: exchange.request_id}
    if prepared.pictures:
        headers[FINGERPRINT_HEADER] = prepared.fingerprint
    return headers


def _request_id(scope: Scope) -> str:
    """The client's own, if it may stand in a header and a log line."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER.encode():
            text = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(text):
                return str(text)
    return uuid.uuid4().hex
