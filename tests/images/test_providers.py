"""What hack/cluster asks of Docker and kind, and what it refuses. Neither program is here: these
write down how they were called."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

VERSION = version("triptych")
SCRIPT = Path(__file__).parents[2] / "hack/cluster"
DOCKER = """#!/bin/sh
echo "docker $*" >> "$CALLS"
if [ "$1" = build ]; then tar --list | grep -x images/Dockerfile > "$CALLS.tar"; fi # the context
"""
KIND = """#!/bin/sh
echo "kind $*" >> "$CALLS"
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def environment(tmp_path: Path, calls: Path) -> dict[str, str]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("docker", DOCKER), ("kind", KIND)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    without = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    path = f"{programs}:{os.environ['PATH']}"
    return {**without, "PATH": path, "CALLS": str(calls), "TRIPTYCH_CACHE": str(tmp_path)}


def cluster(provider: str, command: str, environment: dict[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [SCRIPT, command],
        env={**environment, "PROVIDER": provider, "ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_kind_makes_a_cluster_of_its_own_and_ends_it(
    tmp_path: Path, calls: Path, environment: dict[str, str]
) -> None:
    kubeconfig = tmp_path / "kind.kubeconfig"
    assert cluster("kind", "up", environment)[:2] == (0, f"export KUBECONFIG={kubeconfig}\n")
    assert cluster("kind", "down", environment)[0] == 0
    assert [line for line in calls.read_text().splitlines() if line.startswith("kind")] == [
        "kind get clusters",
        f"kind create cluster --name triptych --kubeconfig {kubeconfig} --wait 120s",
        "kind delete cluster --name triptych",
    ]


def test_images_for_kind_are_named_as_the_chart_names_them(
    calls: Path, environment: dict[str, str]
) -> None:
    code, _, said = cluster("kind", "images", environment)
    assert code == 0, said
    build = f"docker build --file images/Dockerfile --target {{0}} --tag triptych-{{0}}:{VERSION}"
    accelerated = f"--build-arg ACCELERATOR=cpu --build-arg VERSION={VERSION} -"
    assert calls.read_text().splitlines() == [
        f"{build.format('operator')} {accelerated}",
        "docker info",
        f"kind load docker-image triptych-operator:{VERSION} --name triptych",
        f"{build.format('worker')} {accelerated}",
        "docker info",
        f"kind load docker-image triptych-worker:{VERSION} --name triptych",
    ]


@pytest.mark.parametrize(
    ("provider", "command", "told"),
    [
        ("existing", "up", "PROVIDER=existing needs KUBECONFIG"),
        ("existing", "images", "push to a registry that your cluster pulls from"),
        ("other", "up", "usage: [PROVIDER=node|kind|existing] hack/cluster up|images|down"),
    ],
)
def test_what_it_cannot_do_it_says(
    environment: dict[str, str], provider: str, command: str, told: str
) -> None:
    code, output, said = cluster(provider, command, environment)
    assert code != 0
    assert output == ""
    assert told in said


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root is told of that first")
def test_without_go_it_says_so_before_it_builds_anything(environment: dict[str, str]) -> None:
    programs = Path(environment["PATH"].split(":")[0])
    for name in ("bash", "dirname", "sed"):
        (programs / name).symlink_to(shutil.which(name) or name)
    code, output, said = cluster("node", "up", {**environment, "PATH": str(programs)})
    assert (code, output) == (1, "")
    assert "needs Go 1.26 on the PATH" in said


def test_a_cluster_that_does_not_answer_is_named(environment: dict[str, str]) -> None:
    silent = Path(environment["PATH"].split(":")[0]) / "kubectl"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    named = {**environment, "KUBECONFIG": "/nowhere"}
    code, output, said = cluster("existing", "up", named)
    assert (code, output, said) == (1, "", "cluster: no cluster answers by KUBECONFIG=/nowhere\n")
