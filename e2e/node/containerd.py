"""A containerd of the node's own: configuration, start, and images."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node.images import Image
from node.layout import Layout
from node.processes import CommandError, run, start, wait

READY_SECONDS = 30.0
IMPORT_SECONDS = 600.0
PAUSE_IMAGE = "triptych.dev/pause:1"

# restrict_oom_score_adj: a machine may refuse a lower score than its own, and then no pod starts.
_CONFIGURATION = """\
version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
"""


class Containerd:
    """containerd at the layout's socket: started here, or elsewhere and only asked here."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._socket = layout.containerd_socket

    def start(self, cni: Path) -> subprocess.Popen[bytes]:
        """Starts containerd and waits until it answers. Containers of an earlier run are forgotten.

        Raises:
            TimeoutError: it does not answer; its log says why.
        """
        configuration = self._layout.run / "containerd.toml"
        configuration.write_text(
            _CONFIGURATION.format(
                root=self._layout.containerd,
                state="/run/containerd",
                socket=self._socket,
                pause=PAUSE_IMAGE,
                cni=cni,
            )
        )
        command = ("containerd", "--config", configuration)
        process = start(command, self._layout.run / "containerd.log")
        wait(self._answers, READY_SECONDS, "containerd answers")
        return process

    def forget_containers(self) -> bool:
        """Removes what a node that was killed left in containerd's books; whether there was any."""
        left = self._ctr("containers", "list", "--quiet").split()
        for container in left:
            self._ctr("containers", "delete", container)
        return bool(left)

    def load(self, image: Image) -> int:
        """Brings an image to the node; gives the bytes of the layers that were not there yet."""
        with self._previous_kept(image.name):
            return self._import(image)

    def tag(self, name: str, other: str) -> None:
        """Has the image that is known as ``name`` known as ``other`` too."""
        self._ctr("images", "tag", "--force", name, other)

    @contextmanager
    def _previous_kept(self, name: str) -> Iterator[None]:
        """Keeps the image that ``name`` meant before: its garbage is collected as soon as the name
        moves on, with the layers that the new image shares and has not laid claim to yet."""
        if name not in self._ctr("images", "list", "--quiet").split():
            yield
            return
        kept = f"{name}.previous"
        self._ctr("images", "tag", "--force", name, kept)
        try:
            yield
        finally:
            self._ctr("images", "rm", kept)

    def _import(self, image: Image) -> int:
        present = frozenset(self._ctr("content", "list", "--quiet").split())
        command = [*self._command(), "images", "import", "-"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            try:
                sent = image.write_archive(process.stdin, leave_out=present)
                process.stdin.close()
            except BrokenPipeError:
                sent = 0  # it ended early, and says why
            problem = process.stderr.read().decode(errors="replace").strip()
        if process.returncode:
            raise CommandError(f"importing {image.name}: {problem}")
        return sent

    def _answers(self) -> bool:
        try:
            self._ctr("version", seconds=5)
        except CommandError:
            return False
        return True

    def _ctr(self, *arguments: str, seconds: float = 60.0) -> str:
        return run(*self._command(), *arguments, seconds=seconds)

    def _command(self) -> tuple[str, ...]:
        return ("ctr", "--address", str(self._socket), "--namespace", "k8s.io")
