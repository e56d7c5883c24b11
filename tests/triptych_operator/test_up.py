"""``triptych up`` and ``triptych ask`` over the real worker and gateway."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from triptych_models import scenes

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
TRIPTYCH = [sys.executable, "-m", "triptych_operator"]


@dataclass
class Up:
    """A service that serves."""

    process: subprocess.Popen[str]
    url: str
    said: Path  # what it tells about its processes

    def ask(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [*TRIPTYCH, "ask", "--url", self.url, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    command = [*TRIPTYCH, "up", "-f", str(EXAMPLES / "fused.yaml"), "--port", "0"]
    options = ["--logs", str(folder), "--start-timeout", "800"]
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=said, text=True
        )
    try:
        assert process.stdout is not None
        text = "".join(process.stdout.readline() for _ in range(2))
        found = re.search(r"http://127\.0\.0\.1:\d+", text)
        assert found is not None, (folder / "said.txt").read_text()
        yield Up(process, found[0], folder / "said.txt")
    finally:
        process.terminate()
        process.wait(120)


def test_a_question_about_a_picture_is_answered(up: Up, tmp_path: Path) -> None:
    scene = scenes.scene(9_000_001)
    picture = tmp_path / "picture.png"
    scenes.draw(scene).save(picture)
    question = scenes.questions(scene)[0]
    answered = up.ask("--image", str(picture), question.text)
    assert (answered.stdout, answered.returncode) == (f"{question.answer}\n", 0)


def test_the_times_of_the_stages_come_with_the_answer(up: Up, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    scenes.draw(scenes.scene(9_000_002)).save(picture)
    answered = up.ask("--times", "--image", str(picture), "how many shapes are there?")
    told = {line.split()[0] for line in answered.stdout.splitlines()[1:]}
    assert {"media_decode", "processor", "encode", "prefill", "decode", "prompt_tokens"} <= told


def test_what_is_no_picture_is_refused_and_the_service_goes_on(up: Up, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_text("no picture")
    refused = up.ask("--image", str(broken), "what is this?")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"triptych: {up.url} answered 400: ")
    assert up.ask("how many shapes are there?").returncode == 0


def test_the_end_drains_the_gateway_before_the_worker(up: Up) -> None:
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(120) == 0
    lines = [line.split() for line in up.said.read_text().splitlines()]
    assert [line[:2] for line in lines[-4:]] == [
        ["gateway-0", "draining"],
        ["gateway-0", "stopped"],
        ["fused-0", "draining"],
        ["fused-0", "stopped"],
    ]
