"""Answers in OpenAI's shape, whole and as chunks of a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from triptych_contract.v1.common_pb2 import (
    FINISH_REASON_LENGTH,
    FINISH_REASON_UNSPECIFIED,
    TokenEvent,
    TokenLogprob,
)

DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    def as_json(self) -> dict[str, object]:
        """OpenAI's ``usage`` object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all parts of one answer have in common."""

    request_id: str
    model: str
    token_ids: bool = False  # choices also tell the ids of their tokens
    created: int = field(default_factory=lambda: int(time.time()))

    def _head(self, kind: str) -> dict[str, object]:
        return {
            "id": f"chatcmpl-{self.request_id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
        }

    def whole(
        self, events: Sequence[TokenEvent], usage: Usage, extension: dict[str, object] | None
    ) -> bytes:
        """The body of an answer that is not streamed."""
        rows = [_logprob_row(event) for event in events if event.HasField("logprobs")]
        choice = {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "".join(event.text for event in events),
                "refusal": None,
            },
            "logprobs": {"content": rows, "refusal": None} if rows else None,
            "finish_reason": finish_reason(events[-1]) if events else "stop",
            **self._ids(events),
        }
        body = self._head("chat.completion") | {"choices": [choice], "usage": usage.as_json()}
        return _json(body | ({"triptych": extension} if extension else {}))

    def opening(self) -> bytes:
        """The first chunk: who speaks."""
        return self._chunk({"role": "assistant", "content": ""}, None, None)

    def chunk(self, event: TokenEvent) -> bytes | None:
        """One token's chunk; None if it has nothing to tell."""
        reason = finish_reason(event)
        rows = [_logprob_row(event)] if event.HasField("logprobs") else None
        if not (event.text or reason or rows or self.token_ids):
            return None
        delta = {"content": event.text} if event.text else {}
        return self._chunk(delta, rows, reason, self._ids([event]))

    def closing(self, usage: Usage | None, extension: dict[str, object] | None) -> bytes:
        """The chunk behind the last token, if usage or times were asked for; then the end."""
        if usage is None and extension is None:
            return DONE
        body = self._head("chat.completion.chunk") | {"choices": []}
        if usage is not None:
            body |= {"usage": usage.as_json()}
        if extension is not None:
            body |= {"triptych": extension}
        return event_of(body) + DONE

    def _ids(self, events: Sequence[TokenEvent]) -> dict[str, list[int]]:
        return {"token_ids": [event.token_id for event in events]} if self.token_ids else {}

    def _chunk(
        self,
        delta: dict[str, str],
        rows: list[dict[str, object]] | None,
        reason: str | None,
        ids: Mapping[str, list[int]] | None = None,
    ) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": {"content": rows, "refusal": None} if rows else None,
            "finish_reason": reason,
            **(ids or {}),
        }
        return event_of(self._head("chat.completion.chunk") | {"choices": [choice]})


def event_of(body: dict[str, object]) -> bytes:
    """One server-sent event."""
    return b"data: " + _json(body) + b"\n\n"


def finish_reason(event: TokenEvent) -> str | None:
    """OpenAI's word for why the answer ended, or None if it goes on."""
    if event.finish_reason == FINISH_REASON_UNSPECIFIED:
        return None
    return "length" if event.finish_reason == FINISH_REASON_LENGTH else "stop"


def _logprob_row(event: TokenEvent) -> dict[str, object]:
    top = [_logprob(one) for one in event.logprobs.top]
    return _logprob(event.logprobs.chosen) | {"top_logprobs": top}


def _logprob(one: TokenLogprob) -> dict[str, object]:
    return {"token": one.text, "logprob": one.logprob, "bytes": list(one.utf8)}


def _json(body: dict[str, object]) -> bytes:
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
