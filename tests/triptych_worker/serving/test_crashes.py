from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
import threading, time
from triptych_worker.serving.crashes import end_with_any_thread

end_with_any_thread()
threading.Thread(target=lambda: {body}, name="language-engine").start()
time.sleep({seconds})
print("still here")
"""


def run(body: str, seconds: float) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(body=body, seconds=seconds)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )


def test_a_thread_that_dies_takes_the_process_with_it_and_is_logged() -> None:
    ended = run("1 / 0", 60)
    assert ended.returncode == 1
    assert "language-engine died, and the process with it" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


def test_a_thread_that_ends_leaves_the_process_alone() -> None:
    ended = run("None", 0.2)
    assert (ended.returncode, ended.stdout) == (0, "still here\n")
