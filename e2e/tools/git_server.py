"""A Git repository that is served over HTTP, as Git's own program for it does."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 30.0
BRANCH = "main"
_AUTHOR = {"GIT_AUTHOR_NAME": "test", "GIT_AUTHOR_EMAIL": "test@example.com"}
_COMMITTER = {"GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@example.com"}


class GitServer:
    """One repository, empty at first, served on loopback inside a ``with``."""

    def __init__(self, folder: Path) -> None:
        self._tree = folder / "repository"
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **_AUTHOR}
        self._environment |= _COMMITTER
        self._tree.mkdir()
        self._git("init", "--quiet", f"--initial-branch={BRANCH}")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder))
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        """What to clone."""
        return f"http://127.0.0.1:{self._server.server_port}/{self._tree.name}/.git"

    def commit(self, files: Mapping[str, str], message: str) -> str:
        """Makes the repository hold exactly ``files``, by path; gives the commit."""
        for path in self._git("ls-files").splitlines():
            (self._tree / path).unlink()
        for path, text in files.items():
            (self._tree / path).write_text(text)
        self._git("add", "--all")
        self._git("commit", "--quiet", f"--message={message}")
        return self._git("rev-parse", "HEAD").strip()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self._tree,
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return done.stdout


def _handler(folder: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Hands requests to ``git http-backend``, which speaks CGI."""

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def _answer(self, body: bytes) -> None:
            done = subprocess.run(
                ["git", "http-backend"],
                input=body,
                env=self._variables(len(body)),
                check=True,
                stdout=subprocess.PIPE,
                timeout=TIMEOUT_SECONDS,
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _variables(self, length: int) -> dict[str, str]:
            url = urlsplit(self.path)
            return {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": url.path,
                "QUERY_STRING": url.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(length),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as the base
            """Says nothing: the tests' output is no access log."""

    return Handler
