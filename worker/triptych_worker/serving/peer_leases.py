"""Asking another encoder for an embedding that it may hold."""

from __future__ import annotations

import asyncio
from typing import Final, cast

import grpc
from triptych_contract.rpc import Failure, error_from_rpc
from triptych_contract.v1.stages_pb2 import LeaseRequest, LeaseResponse
from triptych_contract.v1.stages_pb2_grpc import EncoderStub

from triptych_worker.domain import Handle, HandleKind
from triptych_worker.serving import checks, incoming
from triptych_worker.transfer.peers import PeerChannels

_CALL_SECONDS: Final = 1.0


class GrpcPeerLeases:
    """Implements ``stages.peer_embeddings.PeerLeases``."""

    def __init__(self, channels: PeerChannels) -> None:
        self._channels = channels

    async def lease(self, peer: str, key: bytes, fingerprint: str) -> Handle | None:
        """See ``PeerLeases.lease``."""
        request = LeaseRequest(fingerprint=fingerprint, keys=[key])
        response = await asyncio.to_thread(self._ask, peer, request)
        checks.count("results", response.results, least=1, most=1)
        (result,) = response.results
        if result.miss:
            return None
        return incoming.handle("handle", result.handle, HandleKind.EMBEDDING)

    def _ask(self, peer: str, request: LeaseRequest) -> LeaseResponse:
        with self._channels.channel(peer) as channel:
            try:
                return EncoderStub(channel).Lease(request, timeout=_CALL_SECONDS)
            except grpc.RpcError as error:
                raise error_from_rpc(cast(Failure, error)) from error
