"""Real processes: a new encoder gets from an older one what that one has made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import tiny_models
from cluster.waiting import eventually
from triptych_contract.v1 import stages_pb2, stages_pb2_grpc
from worker_process import CALL_SECONDS, Processed, WorkerProcess, describe, encoded, released

pytestmark = [pytest.mark.torch, pytest.mark.processes, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build("qwen2_5_vl", tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def encoders(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[WorkerProcess]]:
    places = (tmp_path_factory.mktemp("encoder") for _ in range(2))
    started = [WorkerProcess("encoder", folder, place) for place in places]
    try:
        yield [worker.ready() for worker in started]
    finally:
        statuses = [worker.end() for worker in started]
    assert statuses == [0, 0]


async def leased(
    worker: WorkerProcess, picture: Processed, peer: str
) -> Sequence[stages_pb2.LeaseResult]:
    request = stages_pb2.LeaseRequest(
        fingerprint=picture.fingerprint, keys=[picture.key, b"x" * 32], peer=peer
    )
    async with worker.channel() as channel:
        stub = stages_pb2_grpc.EncoderStub(channel)
        return (await stub.Lease(request, timeout=CALL_SECONDS)).results


async def taken_over(
    worker: WorkerProcess, picture: Processed, peer: str
) -> Sequence[stages_pb2.LeaseResult]:
    """What is leased with the help of a peer that was quick enough: one that a busy machine holds
    up is given up by the worker, whose log says so, and asked again."""

    def given_up() -> int:
        return worker.log.read_text().count("nothing was taken over from")

    async def look() -> Sequence[stages_pb2.LeaseResult]:
        before = given_up()
        results = await leased(worker, picture, peer)
        return () if given_up() > before else results

    return await eventually(look, "a peer that is quick enough", seconds=CALL_SECONDS)


async def test_an_embedding_is_pulled_and_not_made_again(
    folder: Path, encoders: list[WorkerProcess]
) -> None:
    older, newer = encoders
    picture = Processed.make(folder, (await describe(older)).fingerprint)
    made = (await encoded(older, picture.chunks())).handle

    here, unknown = await taken_over(newer, picture, older.addresses["grpc"])
    assert unknown.miss
    assert here.handle.source == newer.addresses["grpc"]
    assert here.handle.checksum == made.checksum
    assert "triptych_images_encoded_total 0.0" in newer.metrics()

    for worker, handle in ((older, made), (newer, here.handle)):
        await released(worker, handle)

    async def all_given_back() -> bool:
        """What was pulled is given back behind the answer."""
        return (await describe(older)).load.leases == 0

    await eventually(all_given_back, "the older one's leases", seconds=CALL_SECONDS)

    again, _ = await leased(newer, picture, "127.0.0.1:1")  # it is asked of nobody any more
    assert again.handle.checksum == made.checksum
    await released(newer, again.handle)


async def test_a_peer_that_is_gone_is_a_miss(folder: Path, encoders: list[WorkerProcess]) -> None:
    _, newer = encoders
    picture = Processed.make(folder, (await describe(newer)).fingerprint, seed=2)
    assert [one.miss for one in await leased(newer, picture, "127.0.0.1:1")] == [True, True]
