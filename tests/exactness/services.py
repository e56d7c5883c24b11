"""A service as its users start it: ``triptych up`` on a manifest, in processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 400.0
STOP_SECONDS = 60.0
# Small enough that 16 requests in flight wait, are chunked and are batched.
LIMITS = {"kvTokens": 16384, "chunkTokens": 96}


def manifest(name: str, folder: Path, topology: str, transport: str) -> dict[str, Any]:
    """One pod per tier, bounds small enough to matter."""
    language = {"replicas": 1, "limits": LIMITS}
    tiers = {
        "Fused": {"fused": language},
        "EncodeSplit": {"encoder": {"replicas": 1}, "fused": language},
        "FullSplit": {"encoder": {"replicas": 1}, "prefill": language, "decode": language},
    }[topology]
    return {
        "apiVersion": "triptych.dev/v1alpha1",
        "kind": "MultimodalService",
        "metadata": {"name": name},
        "spec": {
            "model": {
                "source": f"file://{folder}",
                "revision": "1",
                "servedName": name,
                "dtype": "float32",
            },
            "topology": topology,
            "tiers": {**tiers, "gateway": {"replicas": 1}},
            "transfer": {"transport": transport},
        },
    }


@contextmanager
def running(document: dict[str, Any], folder: Path) -> Iterator[str]:
    """Starts the service and gives the URL of its gateway; drains and ends it afterwards."""
    path = folder / "service.yaml"
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "triptych_operator", "up", "-f", str(path), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--threads", "1", "--logs", str(folder), "--start-timeout", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        start_new_session=True,
    )
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        yield _url(process, folder)
    finally:
        timer.cancel()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert code == 0, f"triptych up ended with {code}"


def _url(process: subprocess.Popen[str], logs: Path) -> str:
    """The gateway's URL, once ``up`` prints it; the output is read to its end in the background."""
    assert process.stdout is not None
    seen: deque[str] = deque(maxlen=50)
    for line in process.stdout:
        seen.append(line)
        if match := re.search(r"http://[\d.]+:\d+", line):
            threading.Thread(target=lambda: seen.extend(process.stdout or ()), daemon=True).start()
            return match[0]
    ends = "".join(path.read_text()[-2000:] for path in sorted(logs.glob("*.log")))
    raise AssertionError(f"the service did not start:\n{''.join(seen)}\n{ends}")
