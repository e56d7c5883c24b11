"""Reading a chat-completion request: strict about names, types and ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError, from_json
from triptych_contract.fingerprints import NO_TENANT

from triptych_gateway.api.errors import InvalidParameter
from triptych_gateway.conversation import Conversation, Image, Message, Role, SamplingWish, Text

# What OpenAI's API knows and this gateway does not do, with the values that ask for nothing.
_NOT_SUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "n": (None, 1),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "parallel_tool_calls": (None, True, False),
    "functions": (None, []),
    "function_call": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "min_p": (None, 0),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "store": (None, False),
    "metadata": (None, {}),
    "service_tier": (None, "auto", "default"),
    "reasoning_effort": (None,),
    "verbosity": (None,),
    "web_search_options": (None,),
}
_SEED_MASK: Final = 2**64 - 1


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _TextPart(_Model):
    type: Literal["text"]
    text: str


class _ImageUrl(_Model):
    url: str = Field(min_length=1)
    detail: Literal["auto", "low", "high"] | None = None


class _ImagePart(_Model):
    """With a ``uuid``, the picture may be left out that the client sent under it before."""

    type: Literal["image_url"]
    image_url: _ImageUrl | None = None
    uuid: str | None = Field(default=None, min_length=1, max_length=256)

    @model_validator(mode="after")
    def _names_a_picture(self) -> Self:
        if self.image_url is None and self.uuid is None:
            raise PydanticCustomError("no_image", "image_url is missing: give it, or a uuid")
        return self


_Part = Annotated[_TextPart | _ImagePart, Field(discriminator="type")]
_Parts = Annotated[list[_Part], Field(min_length=1, max_length=4096)]
_TextParts = Annotated[list[_TextPart], Field(min_length=1, max_length=4096)]


def _content_kind(value: object) -> str:
    return "parts" if isinstance(value, list) else "string"


_UserContent = Annotated[
    Annotated[str, Tag("string")] | Annotated[_Parts, Tag("parts")], Discriminator(_content_kind)
]
_TextContent = Annotated[
    Annotated[str, Tag("string")] | Annotated[_TextParts, Tag("parts")],
    Discriminator(_content_kind),
]


class _SystemMessage(_Model):
    role: Literal["system"]
    content: _TextContent
    name: None = None


class _UserMessage(_Model):
    role: Literal["user"]
    content: _UserContent
    name: None = None


class _AssistantMessage(_Model):
    """What an earlier answer's message holds beside its content must be empty."""

    role: Literal["assistant"]
    content: _TextContent
    name: None = None
    refusal: None = None
    annotations: Annotated[list[None] | None, Field(max_length=0)] = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[None] | None, Field(max_length=0)] = None


_Message = Annotated[_SystemMessage | _UserMessage | _AssistantMessage, Field(discriminator="role")]


class _StreamOptions(_Model):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Number = Annotated[float, Field(allow_inf_nan=False)]
_StopString = Annotated[str, Field(min_length=1, max_length=1024)]


class _ChatRequest(_Model):
    model: str
    messages: list[_Message] = Field(min_length=1, max_length=4096)
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    temperature: Annotated[_Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[_Number, Field(gt=0, le=1)] | None = None
    top_k: int | None = Field(default=None, ge=-1, lt=2**31)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    stop: Annotated[
        Annotated[list[_StopString], Field(max_length=4)] | None, BeforeValidator(_as_list)
    ] = None
    min_tokens: int | None = Field(default=None, ge=0, lt=2**31)
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    # Who asks, in the client's words; changes nothing.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request that was read and found well-formed."""

    model: str
    conversation: Conversation
    stream: bool
    include_usage: bool
    token_ids: bool  # each choice also tells the ids of its tokens


def parse_chat_request(body: bytes, request_id: str, salt: bytes = NO_TENANT) -> ChatRequest:
    """Reads the JSON ``body`` of ``POST /v1/chat/completions`` of the tenant that has ``salt``.

    Raises:
        InvalidParameter: malformed or not supported; the message names the field.
    """
    try:
        fields = from_json(body)
    except ValueError as error:
        raise InvalidParameter(f"the body is not valid JSON: {error}", None) from error
    if not isinstance(fields, dict):
        raise InvalidParameter("the body must be a JSON object", None)
    try:
        request = _ChatRequest.model_validate(_supported(fields))
    except ValidationError as error:
        raise _first_of(error) from error
    return _checked(request, request_id, salt)


def _supported(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are left when those which ask for nothing are taken away."""
    for name, neutral in _NOT_SUPPORTED.items():
        if name in fields and not _is_one_of(fields[name], neutral):
            raise InvalidParameter(f"{name} is not supported here; leave it out", name)
    return {name: value for name, value in fields.items() if name not in _NOT_SUPPORTED}


def _is_one_of(value: object, neutral: tuple[object, ...]) -> bool:
    """Equality that tells true from 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral)


def _first_of(error: ValidationError) -> InvalidParameter:
    first = error.errors(include_url=False, include_input=False)[0]
    path = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        return InvalidParameter(f"{path} is not a known field; check its spelling", path)
    return InvalidParameter(f"{path}: {first['msg']}", path)


def _path(steps: Sequence[int | str]) -> str:
    """The field's place without the names of union members: those that follow an index or
    ``content``."""
    kept = [
        str(step)
        for before, step in zip(("", *steps), steps, strict=False)
        if isinstance(step, int) or not (isinstance(before, int) or before == "content")
    ]
    return ".".join(kept)


def _checked(request: _ChatRequest, request_id: str, salt: bytes) -> ChatRequest:
    if request.top_logprobs and not request.logprobs:
        raise InvalidParameter("top_logprobs needs logprobs to be true", "top_logprobs")
    if request.stream_options is not None and not request.stream:
        raise InvalidParameter("stream_options needs stream to be true", "stream_options")
    sampling = _sampling(request)
    if sampling.max_tokens is not None and sampling.min_tokens > sampling.max_tokens:
        raise InvalidParameter("min_tokens is larger than max_tokens", "min_tokens")
    options = request.stream_options
    return ChatRequest(
        model=request.model,
        conversation=Conversation(
            request_id=request_id,
            messages=tuple(_message(message) for message in request.messages),
            sampling=sampling,
            salt=salt,
        ),
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        token_ids=bool(request.return_token_ids),
    )


def _sampling(request: _ChatRequest) -> SamplingWish:
    limits = {request.max_tokens, request.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise InvalidParameter(
            "max_tokens and max_completion_tokens differ; give one of them", "max_tokens"
        )
    return SamplingWish(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=max(request.top_k or 0, 0),
        seed=None if request.seed is None else request.seed & _SEED_MASK,
        max_tokens=next(iter(limits), None),
        min_tokens=request.min_tokens or 0,
        stop=tuple(request.stop or ()),
        ignore_eos=bool(request.ignore_eos),
        logprobs=bool(request.logprobs),
        top_logprobs=request.top_logprobs or 0,
    )


def _message(message: _SystemMessage | _UserMessage | _AssistantMessage) -> Message:
    content = message.content
    if isinstance(content, str):
        return Message(Role(message.role), (Text(content),))
    return Message(Role(message.role), tuple(_part(part) for part in content))


def _part(part: _TextPart | _ImagePart) -> Text | Image:
    if isinstance(part, _TextPart):
        return Text(part.text)
    return Image(part.image_url.url if part.image_url else "", part.uuid or "")
