"""What a client asked for, once its request has been read: the gateway's own words for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from triptych_contract.fingerprints import NO_TENANT


class Role(StrEnum):
    """Who said a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a message that is text."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A piece of a message that is a picture: by a ``data:`` or ``https:`` URL, by the ``uuid``
    that the client gave to one it sent before, or by both. What is not given is empty."""

    url: str
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    parts: tuple[Text | Image, ...]


@dataclass(frozen=True, slots=True)
class SamplingWish:
    """How tokens shall be chosen; what the client left open is None or neutral."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: bool = False
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages to answer, and how."""

    request_id: str
    messages: tuple[Message, ...]
    sampling: SamplingWish
    salt: bytes = NO_TENANT  # ``tenant_salt`` of who asks

    def images(self) -> Iterator[Image]:
        """The pictures, in prompt order."""
        return (
            part for message in self.messages for part in message.parts if isinstance(part, Image)
        )
