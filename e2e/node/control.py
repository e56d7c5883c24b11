"""How others speak to the supervisor: one line there, one line back, over a Unix socket."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path

ANSWER_SECONDS = 120.0
LINE_BYTES = 4096


def ask(socket_path: Path, line: str) -> str:
    """Sends one line to the supervisor and gives its answer.

    Raises:
        OSError: nobody listens, or no answer came in time.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(str(socket_path))
        connection.sendall(f"{line}\n".encode())
        return connection.makefile().readline(LINE_BYTES).strip()


def serve(socket_path: Path, answer: Callable[[str], str]) -> None:
    """Answers lines in a thread of its own, as long as the process lives."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline(LINE_BYTES).decode(errors="replace").strip()
            self.wfile.write(f"{answer(line)}\n".encode())

    server = socketserver.ThreadingUnixStreamServer(str(socket_path), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="control", daemon=True).start()
