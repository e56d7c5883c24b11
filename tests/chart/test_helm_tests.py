"""What ``helm test`` runs, run here: each pod's very command, against a server that answers it."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster.ports import free_port
from openai_server import serving
from tools.programs import Helm, Object, is_hook
from triptych_operator.controller.health import serve
from triptych_operator.controller.settings import Listen

SERVICE = "http://shapes-gateway.models.svc:8000"
HEALTH = "http://triptych-operator.triptych-system.svc:8080/healthz"


def hooks_of(rendering: Helm, *values: str) -> dict[str, Object]:
    """The objects of the chart's tests, by kind."""
    found = [one for one in yaml.safe_load_all(rendering.template(*values)) if one]
    return {one["kind"]: one for one in found if is_hook(one)}


def command_of(pod: Object) -> list[str]:
    (container,) = pod["spec"]["containers"]
    command: list[str] = container["command"]
    return command


def test_a_service_that_is_named_is_asked_about_the_picture(
    rendering: Helm, tmp_path: Path
) -> None:
    named = ("--set=tests.service=shapes,tests.namespace=models",)
    objects = hooks_of(rendering, *named)
    picture = tmp_path / "picture.png"
    picture.write_bytes(base64.b64decode(objects["ConfigMap"]["binaryData"]["picture.png"]))
    program, *arguments = command_of(objects["Pod"])
    assert program == "triptych"
    assert f"--url={SERVICE}" in arguments
    with serving() as server:
        text = "\n".join(arguments).replace(SERVICE, server.url)
        given = text.replace("/pictures/picture.png", str(picture)).split("\n")
        asked = [sys.executable, "-m", "triptych_operator", *given]
        done = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "a red circle\n"
    shown, question = server.bodies[0]["messages"][0]["content"]
    assert shown["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert question["text"] == "what is at top left?"


@pytest.mark.parametrize("problem", ["", "nothing could be listed for 130 s"])
async def test_otherwise_the_operator_is_asked_for_its_health(
    rendering: Helm, problem: str
) -> None:
    program, *arguments = command_of(hooks_of(rendering)["Pod"])
    assert program == "python3"
    assert HEALTH in arguments[-1]
    port = free_port()
    url = f"http://127.0.0.1:{port}/healthz"
    async with serve(Listen("127.0.0.1", port), lambda: problem):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *[one.replace(HEALTH, url) for one in arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        told, error = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode == 0) == (problem == "")
    assert f"{url} 200 ok\n".encode() in told if not problem else b"503" in error
