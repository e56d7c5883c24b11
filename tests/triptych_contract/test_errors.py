"""Every error has a reason, a status and a way back from the wire."""

from __future__ import annotations

import grpc
import pytest
from triptych_contract import errors
from triptych_contract.errors import Reason, TriptychError
from triptych_contract.statuses import GRPC_STATUS, from_detail, from_status, to_detail
from triptych_contract.v1.common_pb2 import ErrorDetail

TREE = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TriptychError)
]
# Without those that only stand for others; what other parts derive from them is theirs.
KINDS = [kind for kind in TREE if not any(kind in other.__bases__ for other in TREE)]


def test_every_reason_has_one_error_and_one_status() -> None:
    assert sorted(kind.reason for kind in KINDS) == sorted(Reason)
    assert set(GRPC_STATUS) == set(Reason)
    assert grpc.StatusCode.OK not in GRPC_STATUS.values()


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_the_wire(kind: type[TriptychError]) -> None:
    sent = kind("do this instead", retry_after=1.25)
    wire = to_detail(sent).SerializeToString()
    received = from_detail(ErrorDetail.FromString(wire))
    assert type(received) is kind
    assert received.message == "do this instead"
    assert received.retryable is sent.retryable
    assert received.retry_after == 1.25


@pytest.mark.parametrize("retryable", [True, False])
def test_a_reason_of_a_newer_peer_keeps_its_retryability(*, retryable: bool) -> None:
    received = from_detail(ErrorDetail(reason="FromTheFuture", message="m", retryable=retryable))
    assert received.retryable is retryable
    assert received.message == "m"


def test_a_bare_status_says_whether_to_retry() -> None:
    assert from_status(grpc.StatusCode.UNAVAILABLE, "m").retryable
    assert from_status(grpc.StatusCode.RESOURCE_EXHAUSTED, "m").reason is Reason.OVERLOADED
    assert not from_status(grpc.StatusCode.UNIMPLEMENTED, "m").retryable
