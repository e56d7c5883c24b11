"""The programs that ``build`` makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CHART = HERE.parents[1] / "charts/triptych"
TIMEOUT_SECONDS = 120.0

Object = dict[str, Any]  # of a manifest


def program(name: str, *, tags: str = "") -> Path:
    """The program of the folder ``name``, built when its sources have changed.

    Args:
        tags: Go's build tags, the same whenever this program is asked for.
    """
    flags = [os.environ.get("GOFLAGS", ""), *([f"-tags={tags}"] if tags else [])]
    answer = subprocess.run(
        [HERE / "build", name],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GOFLAGS": " ".join(flags).strip()},
    )
    return Path(answer.stdout.strip())


def sources(name: str, module: str) -> Path:
    """The unpacked Go module ``module`` at the version that the folder ``name`` asks for."""
    for command in (["mod", "download", module], ["list", "-m", "-f", "{{.Dir}}", module]):
        answer = subprocess.run(
            ["go", *command], cwd=HERE / name, check=True, stdout=subprocess.PIPE, text=True
        )
    return Path(answer.stdout.strip())


class Helm:
    """Helm with folders of its own, so that nobody's plugins or repositories play a part."""

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self._program = program("helm")
        self._environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(kubeconfig)

    def run(self, *arguments: str | Path) -> str:
        """What Helm printed.

        Raises:
            HelmRefused: it ended with an error, in Helm's words.
        """
        done = subprocess.run(
            [self._program, *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=TIMEOUT_SECONDS,
        )
        if done.returncode:
            raise HelmRefused(done.stderr or done.stdout)
        return done.stdout

    def template(self, *arguments: str | Path, namespace: str = "triptych-system") -> str:
        """The chart's objects, as YAML documents, without a cluster."""
        return self.run("template", "triptych", CHART, f"--namespace={namespace}", *arguments)

    def objects(self, *arguments: str | Path, namespace: str = "triptych-system") -> list[Object]:
        """The chart's objects but for its tests, parsed."""
        text = self.template(*arguments, namespace=namespace)
        found = [one for one in yaml.safe_load_all(text) if one]
        return [one for one in found if not is_hook(one)]


class HelmRefused(Exception):
    """Helm ended with an error."""


def is_hook(manifest: Object) -> bool:
    """Whether Helm runs this object instead of installing it."""
    return "helm.sh/hook" in (manifest["metadata"].get("annotations") or {})
