"""What the API server answers, read no further than is needed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from triptych_operator.cluster.refusals import unreadable

Object = Mapping[str, Any]  # as the API server hands it out
_ITEMS: Final = b'"items":'
_LIST: Final = "a list"  # what an answer is called that is none


class _Owner(TypedDict):
    kind: str
    name: str


class _Metadata(TypedDict, total=False):
    namespace: str
    name: str
    resourceVersion: str
    labels: dict[str, str]
    ownerReferences: list[_Owner]


class _Head(TypedDict):
    metadata: _Metadata


class _Heads(TypedDict):
    items: Sequence[_Head] | None


_HEADS: Final = TypeAdapter(_Heads)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: the list's version, and its objects unread."""

    version: int
    text: bytes

    def items(self) -> list[Object]:
        """The objects. They do not say their kind; those of metadata alone have nothing else.

        Raises:
            Refusal: the page is not an API server's.
        """
        return parsed(self._object(), _LIST)["items"] or []

    def heads(self) -> Sequence[Object]:
        """Of each object its names, version, labels and owners. Nine tenths of its metadata tell
        who set which field, and are not worth the time of making objects of them.

        Raises:
            Refusal: the page is not an API server's.
        """
        try:
            return _HEADS.validate_json(self._object())["items"] or []
        except ValidationError as error:
            raise unreadable(_LIST) from error

    def _object(self) -> bytes:
        return b'{"items":' + self.text + b"}"


def split(answer: bytes, what: str) -> tuple[Object, bytes]:
    """A list's metadata, and the text of its objects. They come last in lists of metadata alone and
    of Kubernetes' own kinds, and are not read for that; lists of custom resources have the order
    of the alphabet, and are.

    Args:
        what: names the answer in an error.

    Raises:
        Refusal: it is no list.
    """
    head, _, items = answer.partition(_ITEMS)
    if b'"metadata":' in head:
        return parsed(head + _ITEMS + b"[]}", what)["metadata"], items.rstrip()[:-1]
    whole = parsed(answer, what)
    return whole.get("metadata", {}), json.dumps(whole.get("items")).encode()


def parsed(answer: bytes, what: str) -> Object:
    """An answer, whole.

    Raises:
        Refusal: it is not JSON.
    """
    try:
        found: Object = json.loads(answer)
    except ValueError as error:
        raise unreadable(what) from error
    return found
