"""From messages to token ids: chat template, user text kept plain, placeholders expanded.

The ids are those of transformers' own processor; only that pictures are not processed again, and
that what a user types is never read as a control token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from triptych_contract.errors import InvalidRequest, PromptTooLong

from triptych_gateway.conversation import Image, Message, Text
from triptych_gateway.processors.pictures import Layout

# Private-use characters around a control token that a user typed. They are taken out of user text
# first, so nobody can forge them.
_OPEN: Final = "\U000f0000"
_CLOSE: Final = "\U000f0001"
_MARKED: Final = re.compile(f"{_OPEN}(.*?){_CLOSE}|[{_OPEN}{_CLOSE}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlacedPicture:
    """Where one picture's embedding rows go in a prompt: runs of (offset, length)."""

    runs: tuple[tuple[int, int], ...]
    grid: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExpandedPrompt:
    """Token ids with every placeholder expanded, and the pictures in prompt order."""

    token_ids: tuple[int, ...]
    pictures: tuple[PlacedPicture, ...]


class PromptBuilder:
    """Renders and encodes conversations for one model. Thread-safe: it only reads.

    Args:
        processor: transformers' processor of the model.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._tokenizer = processor.tokenizer
        self._backend = processor.tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._image_token: int = processor.image_token_id
        tokens = _control_tokens(processor)
        longest_first = sorted(tokens, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._longest_token = max(map(len, self._backend.get_vocab()))

    def build(
        self, messages: Sequence[Message], layouts: Sequence[Layout], context_tokens: int = 0
    ) -> ExpandedPrompt:
        """The prompt that asks for an answer to ``messages``.

        Args:
            messages: at least one.
            layouts: of the pictures in ``messages``, in order.
            context_tokens: that prompt and answer may have together; 0 if nobody knows.

        Raises:
            PromptTooLong: the text cannot fit, which is known before it is encoded: encoding takes
                seconds and a hundred times its bytes for what a request's body may hold.
            InvalidRequest: the chat template refuses the messages, or a control token that a user
                typed cannot be kept plain text.
        """
        text = self._render(messages)
        if context_tokens and len(text) > context_tokens * self._longest_token:
            raise PromptTooLong(
                f"the messages have {len(text)} characters, more than the model's context of "
                f"{context_tokens} tokens can hold; shorten them"
            )
        token_ids = self._encode(text)
        if token_ids.count(self._image_token) != len(layouts):
            raise InvalidRequest("the model's chat template does not take images in this place")
        return _expanded(token_ids, self._image_token, layouts)

    def _render(self, messages: Sequence[Message]) -> str:
        conversation = [
            {"role": str(message.role), "content": [self._part(part) for part in message.parts]}
            for message in messages
        ]
        try:
            return str(
                self._processor.apply_chat_template(
                    conversation, tokenize=False, add_generation_prompt=True
                )
            )
        except Exception as error:  # a template raises what it likes; its text is the model's own
            raise InvalidRequest(
                "the model's chat template refuses these messages: check the order of roles"
            ) from error

    def _part(self, part: Text | Image) -> dict[str, str]:
        if isinstance(part, Image):
            return {"type": "image"}
        plain = part.text.replace(_OPEN, "").replace(_CLOSE, "")
        return {"type": "text", "text": self._control.sub(f"{_OPEN}\\g<0>{_CLOSE}", plain)}

    def _encode(self, text: str) -> list[int]:
        special = self._adds_special_tokens(text)
        if _OPEN not in text and _CLOSE not in text:
            return self._encoded(text, special=special)
        # The split gives [text, marked token, text, ...], None for a mark that stands alone.
        pieces = _MARKED.split(text)
        ids = self._encoded(pieces[0], special=special)
        for index, piece in enumerate(pieces[1:], start=1):
            if piece:
                ids += self._plain(piece) if index % 2 else self._encoded(piece, special=False)
        return ids

    def _adds_special_tokens(self, text: str) -> bool:
        """As transformers does: not when the template has written the first one already."""
        bos = self._tokenizer.bos_token
        return not (bos is not None and text.startswith(bos))

    def _encoded(self, text: str, *, special: bool) -> list[int]:
        # A batch of one: encode() keeps the GIL for as long as it takes, which for a long prompt is
        # seconds in which every other request and the probes would wait.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=special)
        return list(encoding.ids)

    def _plain(self, token: str) -> list[int]:
        """A control token's text, encoded as the letters that it is made of."""
        backend = self._backend
        text = backend.normalizer.normalize_str(token) if backend.normalizer else token
        words = (
            [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
            if backend.pre_tokenizer
            else [text]
        )
        ids = [found.id for word in words for found in backend.model.tokenize(word)]
        if backend.token_to_id(token) in ids:
            raise InvalidRequest(f"the text {token!r} has a special meaning to this model")
        return ids


def _control_tokens(processor: Any) -> set[str]:
    """Special tokens, and other added tokens that the chat template or a placeholder writes."""
    tokenizer = processor.tokenizer
    written = f"{processor.chat_template or tokenizer.chat_template or ''}{processor.image_token}"
    added = tokenizer.added_tokens_decoder.values()
    return {
        token.content
        for token in added
        if token.special or (token.content in written and not token.content.isspace())
    }


def _expanded(
    token_ids: Sequence[int], image_token: int, layouts: Sequence[Layout]
) -> ExpandedPrompt:
    """Puts each layout in the place of one ``image_token``."""
    expanded: list[int] = []
    pictures: list[PlacedPicture] = []
    start = 0
    for end, layout in zip(_positions(token_ids, image_token), layouts, strict=True):
        expanded += token_ids[start:end]
        runs = tuple((len(expanded) + offset, length) for offset, length in layout.runs)
        pictures.append(PlacedPicture(runs, layout.grid))
        expanded += layout.token_ids
        start = end + 1
    expanded += token_ids[start:]
    return ExpandedPrompt(tuple(expanded), tuple(pictures))


def _positions(token_ids: Sequence[int], token: int) -> Iterator[int]:
    return (index for index, one in enumerate(token_ids) if one == token)
