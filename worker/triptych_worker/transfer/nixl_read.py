"""The ``nixl`` transport: the receiver reads the holder's memory through UCX.

One agent per process for its whole life, with memory registered once: making either per request is
what makes others slow. Descriptors are rebuilt from address, length and device, because NIXL's own
serialised form is a pickle, and no pickle crosses a wire. An agent's metadata is NIXL's own binary
format of names, addresses and keys, not a pickle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, cast

import grpc
from triptych_contract.errors import (
    DeadlineExceeded,
    InvalidRequest,
    TransferCorrupted,
    Unavailable,
)
from triptych_contract.rpc import Failure, error_from_rpc
from triptych_contract.v1.transfer_pb2 import OpenRequest, OpenResponse
from triptych_contract.v1.transfer_pb2_grpc import TransferStub

from triptych_worker.domain import Handle
from triptych_worker.transfer.arena import Arena
from triptych_worker.transfer.layout import checksum
from triptych_worker.transfer.peers import PeerChannels
from triptych_worker.transfer.progress import Progress
from triptych_worker.transfer.transport import (
    Limit,
    Place,
    check_content,
    check_header,
    check_length,
    fetch_request,
)

_LOG: Final = logging.getLogger(__name__)
_BACKEND: Final = "UCX"
_MEMORY: Final = "DRAM"
_MAX_PEERS: Final = 64
# Between two looks at a read: short at first, since 10 MiB take a millisecond or two, and looking
# is what moves them.
_FIRST_LOOK: Final = 0.00002
_LAST_LOOK: Final = 0.005


class NixlAgent:
    """The one door to NIXL. Any thread may call any method."""

    def __init__(self, name: str, holding: Arena, landing: Arena) -> None:
        """Starts the agent and registers both arenas; peers learn of ``holding`` only.

        Raises:
            InvalidRequest: NIXL is not installed or cannot start; the message says which.
        """
        api = _load()
        self.name = name
        self._failures: tuple[type[Exception], ...] = _failures(api)
        try:
            # STRICT: pulls run on several threads.
            config = api.nixl_agent_config(
                enable_prog_thread=False,  # it spins; see transfer/progress.py
                backends=[_BACKEND],
                sync_mode=api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT,
            )
            self._agent: Any = api.nixl_agent(name, config)
            held = self._register(holding)
            self._registered = (held, self._register(landing))
            self.metadata: bytes = self._agent.get_partial_agent_metadata(
                held, inc_conn_info=True, backends=[_BACKEND]
            )
        except (RuntimeError, *self._failures) as error:  # type: ignore[misc]  # not in a literal
            raise InvalidRequest(f"NIXL cannot start: {error}; set transport: grpc") from error
        self._lock = threading.Lock()
        self._peers: OrderedDict[str, bytes] = OrderedDict()  # by name, least recently met first
        self._reading: dict[str, int] = {}  # reads under way by peer
        self._progress = Progress(self._agent.get_new_notifs)

    def announce(self, lease: str) -> None:
        """A peer is about to read this process's memory under ``lease``."""
        self._progress.announce(lease)

    def done(self, leases: Iterable[str]) -> None:
        """Peers have read, or read no more, what these cover."""
        self._progress.done(leases)

    def read(
        self, peer: str, metadata: bytes, remote: tuple[int, int], local: int, limit: Limit
    ) -> None:
        """Reads ``remote`` = (address, length) of ``peer`` into this process at ``local``.

        When this returns or raises, nothing writes to ``local`` any more.

        Raises:
            Unavailable: the peer is not reachable or the read failed.
            DeadlineExceeded: the limit was reached or cancelled.
        """
        address, length = remote
        try:
            self._meet(peer, metadata)
            try:
                transfer = self._agent.initialize_xfer(
                    "READ",
                    self._agent.get_xfer_descs([(local, length, 0)], _MEMORY),
                    self._agent.get_xfer_descs([(address, length, 0)], _MEMORY),
                    peer,
                )
                self._complete(transfer, limit)
            finally:
                self._leave(peer)
        except self._failures as error:
            raise Unavailable(f"NIXL could not read from {peer}: {error}") from error

    def close(self) -> None:
        """Gives the registered memory back."""
        self._progress.stop()
        for descriptors in self._registered:
            try:
                self._agent.deregister_memory(descriptors)
            except self._failures:
                _LOG.warning("NIXL kept memory registered at the end", exc_info=True)

    def _register(self, arena: Arena) -> Any:
        region = (arena.address, arena.buffer.nbytes, 0, "")
        return self._agent.register_memory([region], _MEMORY, backends=[_BACKEND])

    def _complete(self, transfer: Any, limit: Limit) -> None:
        """Waits for the end of a read. A read that is given up is waited for until it is gone."""
        state, pause, given_up = self._agent.transfer(transfer), _FIRST_LOOK, False
        while state == "PROC":
            if limit.remaining == 0 and not given_up:
                given_up = True
                if self._released(transfer):
                    break
            time.sleep(pause)
            pause = min(pause * 1.5, _LAST_LOOK)
            state = self._agent.check_xfer_state(transfer)
        else:
            self._released(transfer)
        if given_up:
            raise DeadlineExceeded("the read through NIXL did not end in time")
        if state != "DONE":
            raise Unavailable(f"the read through NIXL ended as {state}")

    def _released(self, transfer: Any) -> bool:
        try:
            transfer.release()
        except self._failures:
            return False  # still under way, and NIXL cannot stop it
        return True

    def _meet(self, peer: str, metadata: bytes) -> None:
        """Makes the peer known, forgetting whom nobody reads from when there are too many."""
        with self._lock:
            if self._peers.get(peer) != metadata:
                self._peers[peer] = metadata
                met = self._agent.add_remote_agent(metadata)
                if met not in (peer, peer.encode()):
                    del self._peers[peer]
                    raise Unavailable(f"the agent of {peer} calls itself otherwise")
            self._peers.move_to_end(peer)
            self._reading[peer] = self._reading.get(peer, 0) + 1
            idle = [name for name in self._peers if name not in self._reading]
            for name in idle[: max(0, len(self._peers) - _MAX_PEERS)]:
                del self._peers[name]
                self._agent.remove_remote_agent(name)

    def _leave(self, peer: str) -> None:
        with self._lock:
            self._reading[peer] -= 1
            if not self._reading[peer]:
                del self._reading[peer]


class NixlRead:
    """Asks the holder where the tensor lies, and reads it there."""

    name = "nixl"

    def __init__(self, agent: NixlAgent, channels: PeerChannels) -> None:
        self._agent = agent
        self._channels = channels

    def pull(self, handle: Handle, place: Place, limit: Limit) -> None:
        """See ``Transport.pull``."""
        opened = self._open(handle, limit)
        check_header(handle, opened.header)
        check_length(handle, opened.length)
        if opened.memory != _MEMORY or opened.agent_name != handle.instance:
            raise TransferCorrupted(
                f"{handle.source} answered for {opened.agent_name} in {opened.memory}: make a new "
                "handle"
            )
        if opened.length:
            remote = (opened.address, opened.length)
            self._agent.read(opened.agent_name, opened.agent, remote, place.address, limit)
        check_content(handle, checksum(place.view))

    def close(self) -> None:
        """See ``Transport.close``."""
        self._agent.close()

    def _open(self, handle: Handle, limit: Limit) -> OpenResponse:
        request = OpenRequest(fetch=fetch_request(handle), transport=self.name)
        with self._channels.channel(handle.source) as channel:
            try:
                opened: OpenResponse = TransferStub(channel).Open(request, timeout=limit.remaining)
            except grpc.RpcError as error:
                raise error_from_rpc(cast(Failure, error)) from error
            return opened


def _load() -> Any:
    try:
        from nixl import _api  # noqa: PLC0415 - optional, and its import loads UCX
    except ImportError as error:
        raise InvalidRequest(
            f"transport nixl needs the package nixl ({error}): install triptych[nixl] or set "
            "transport: grpc"
        ) from error
    # It prints its progress on standard output otherwise.
    logging.getLogger("nixl").setLevel(logging.WARNING)
    logging.getLogger(_api.__name__.partition(".")[0]).setLevel(logging.WARNING)
    return _api


def _failures(api: Any) -> tuple[type[Exception], ...]:
    """NIXL's exceptions, which share no base of their own."""
    bindings = vars(api.nixlBind)
    return tuple(
        kind
        for name, kind in bindings.items()
        if name.startswith("nixl") and isinstance(kind, type) and issubclass(kind, Exception)
    )
