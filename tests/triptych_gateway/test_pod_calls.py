"""When a call to a pod is given up."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from triptych_gateway.tiers.calls import PodCalls, PodLost

pytestmark = pytest.mark.torch

BUSY_POD = Path(__file__).with_name("busy_pod.py")
SILENT_SECONDS = 2.0  # a machine that others use may keep a process waiting for one


@contextmanager
def busy_pod(seconds: float) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address and process of a pod that is busy for ``seconds`` at every Describe."""
    command = [sys.executable, str(BUSY_POD), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


@pytest.fixture
async def calls():
    made = PodCalls(SILENT_SECONDS)
    yield made
    await made.close()


async def test_a_pod_that_is_busy_for_long_is_waited_for(calls):
    with busy_pod(3 * SILENT_SECONDS) as (address, _):
        began = time.monotonic()
        answer = await calls.describe(address, 60)
        assert answer.instance == "busy"
        assert time.monotonic() - began >= 3 * SILENT_SECONDS


async def test_a_pod_that_is_frozen_is_lost_long_before_the_deadline(calls):
    with busy_pod(0) as (address, process):
        await calls.describe(address, 60)
        process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(PodLost, match="went away") as lost:
            await calls.describe(address, 60)
        assert lost.value.reached
        assert time.monotonic() - began < 30
