"""Lasting connections to other workers' Transfer services, used from any thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import grpc
from triptych_contract.config import MIB
from triptych_contract.errors import Unavailable

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 8 * MIB),
    # Bulk does not share a connection with anything else of this process.
    ("grpc.use_local_subchannel_pool", 1),
    # A restarted peer is found again within a second, a vanished one missed within seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


@dataclass(slots=True)
class _Peer:
    channel: grpc.Channel
    users: int = 0


class PeerChannels:
    """One channel per address; beyond ``limit``, idle ones close, least recently used first."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._closed = False

    @contextmanager
    def channel(self, address: str) -> Iterator[grpc.Channel]:
        """The channel to ``address``; it stays open inside the ``with``.

        Raises:
            Unavailable: this process is ending.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("this worker is ending")
            peer = self._peers.get(address)
            if peer is None:
                peer = _Peer(grpc.insecure_channel(address, options=_OPTIONS))
                self._peers[address] = peer
            self._peers.move_to_end(address)
            peer.users += 1
            surplus = self._take_surplus()
        for channel in surplus:
            channel.close()
        try:
            yield peer.channel
        finally:
            with self._lock:
                peer.users -= 1

    def close(self) -> None:
        """Closes all channels; calls under way fail."""
        with self._lock:
            self._closed = True
            channels = [peer.channel for peer in self._peers.values()]
            self._peers.clear()
        for channel in channels:
            channel.close()

    def _take_surplus(self) -> list[grpc.Channel]:
        surplus = len(self._peers) - self._limit
        idle = [address for address, peer in self._peers.items() if peer.users == 0]
        return [self._peers.pop(address).channel for address in idle[: max(0, surplus)]]
