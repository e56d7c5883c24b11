"""How real worker processes start, drain, crash and refuse to start."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import tiny_models
from grpc_health.v1 import health_pb2, health_pb2_grpc
from triptych_contract.rpc import error_from_rpc
from triptych_contract.v1 import common_pb2, stages_pb2_grpc
from worker_process import (
    CALL_SECONDS,
    Processed,
    WorkerProcess,
    describe,
    encoded,
    prefilled,
    question,
    text_only,
)

pytestmark = [pytest.mark.torch, pytest.mark.processes, pytest.mark.timeout(900)]

LONG = 1500  # tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build("qwen2_5_vl", tmp_path_factory.mktemp("model") / "tiny")


async def test_sigterm_lets_running_answers_end_and_refuses_new_ones(
    folder: Path, tmp_path: Path
) -> None:
    worker = WorkerProcess("fused", folder, tmp_path).ready()
    described = await describe(worker)
    # Longer than a machine that others use may keep us from asking.
    long = question(text_only(), described, max_tokens=LONG, ignore_eos=True)
    async with worker.channel() as channel:
        fused = stages_pb2_grpc.FusedStub(channel)
        running = [aiter(fused.Generate(long, timeout=CALL_SECONDS)) for _ in range(3)]
        for events in running:
            await anext(events)
        worker.process.send_signal(signal.SIGTERM)
        error = await _refusal(fused, question(text_only(), described))
        assert error == "draining; use another pod"
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await describe(worker)).state == common_pb2.STATE_DRAINING
        rest = await asyncio.gather(*(_length(events) for events in running))
    assert rest == [LONG - 1] * 3
    assert await asyncio.to_thread(worker.process.wait, CALL_SECONDS) == 0


async def test_a_second_sigterm_ends_the_process_at_once(folder: Path, tmp_path: Path) -> None:
    worker = WorkerProcess("fused", folder, tmp_path).ready()
    described = await describe(worker)
    long = question(text_only(), described, max_tokens=4000, ignore_eos=True)
    async with worker.channel() as channel:
        fused = stages_pb2_grpc.FusedStub(channel)
        events = aiter(fused.Generate(long, timeout=CALL_SECONDS))
        await anext(events)
        worker.process.send_signal(signal.SIGTERM)
        # Short ones: long ones would take the room for keys and values, and then wait for it. And
        # only once the first signal was seen, for two that wait are one.
        error = await _refusal(fused, question(text_only(), described))
        assert error == "draining; use another pod"
        worker.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.process.wait, CALL_SECONDS) == 1


async def test_an_encoder_killed_while_prefill_fetches_is_a_retryable_error(
    folder: Path, tmp_path: Path
) -> None:
    encoder = WorkerProcess("encoder", folder, tmp_path)
    prefill = WorkerProcess("prefill", folder, tmp_path)
    encoder.ready(), prefill.ready()
    picture = Processed.make(folder, (await describe(encoder)).fingerprint)
    handle = (await encoded(encoder, picture.chunks())).handle
    described = await describe(prefill)
    encoder.process.send_signal(signal.SIGSTOP)  # the fetch has begun and cannot end
    asking = asyncio.create_task(
        prefilled(prefill, question(picture.prompt(handle), described, picture.fingerprint))
    )
    await asyncio.sleep(1)
    assert not asking.done()
    encoder.process.kill()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asking
    assert error_from_rpc(caught.value).retryable
    text = await prefilled(prefill, question(text_only(), described))
    assert text.state.prompt_tokens == 4
    assert (await describe(prefill)).load.kv_tokens_used == 0
    prefill.end(signal.SIGKILL)


def test_a_model_folder_that_lacks_a_file_ends_with_one_line(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "tokenizer.json").unlink()
    worker = WorkerProcess("decode", broken, tmp_path)
    assert worker.process.wait(CALL_SECONDS * 2) == 2
    last = worker.log.read_text().splitlines()[-1]
    assert last.startswith("triptych-worker: ")
    assert "is missing tokenizer.json" in last


def test_a_device_that_is_not_here_ends_with_one_line(folder: Path, tmp_path: Path) -> None:
    model = {"source": f"file://{folder}", "device": "cuda:99"}
    worker = WorkerProcess("decode", folder, tmp_path, model=model)
    assert worker.process.wait(CALL_SECONDS * 2) == 2
    assert "cuda:99 is not here" in worker.log.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"model": {}}, "model.source"),
        ({"model": {"source": "file:///m"}, "modle": 1}, "modle"),
        ({"model": {"source": "file:///m"}, "threads": -1}, "threads"),
        ({"model": {"source": "file:///m"}, "pace_seconds": -0.05}, "pace_seconds"),
    ],
)
def test_a_wrong_configuration_ends_by_naming_the_field(
    tmp_path: Path, document: dict[str, object], says: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    ended = subprocess.run(
        [sys.executable, "-m", "triptych_worker", "decode", "--config", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=CALL_SECONDS,
    )
    assert ended.returncode == 2
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


async def _refusal(fused: stages_pb2_grpc.FusedAsyncStub, request: object) -> str:
    """The message that new work is refused with, once the drain has begun."""
    async with asyncio.timeout(CALL_SECONDS):
        while True:
            events = aiter(fused.Generate(request, timeout=CALL_SECONDS))
            try:
                await anext(events)
            except grpc.aio.AioRpcError as error:
                return error_from_rpc(error).message
            await asyncio.sleep(0.02)


async def _length(events: AsyncIterator[object]) -> int:
    return len([event async for event in events])
