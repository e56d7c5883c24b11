"""A small server of the OpenAI API for tests: answers what it is told, keeps what it was sent."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """``answer`` is sent to every question; a ``status`` other than 200 as an error of its text."""

    url: str = ""
    answer: str = "a red circle"
    status: int = 200
    models: tuple[str, ...] = ("shapes", "other")
    report: dict[str, Any] = field(
        default_factory=lambda: {"times": {"encode": 0.0125}, "counts": {"visual_tokens": 16}}
    )
    bodies: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a free port of this machine."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"object": "list", "data": [_model(name) for name in server.models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.bodies.append(body)
            if server.status != 200:
                self._send({"error": {"message": server.answer}}, server.status)
            elif body.get("stream"):
                self._stream()
            else:
                wanted = self.headers.get("x-triptych-times") == "1"
                self._send(_completion(server) | ({"triptych": server.report} if wanted else {}))

        def _send(self, body: dict[str, Any], status: int = 200) -> None:
            self._raw(json.dumps(body).encode(), "application/json", status)

        def _stream(self) -> None:
            words = server.answer.split(" ")
            texts = [words[0], *(f" {word}" for word in words[1:])]
            events = [f"data: {json.dumps(_chunk(text))}\n\n" for text in texts]
            self._raw("".join([*events, "data: [DONE]\n\n"]).encode(), "text/event-stream", 200)

        def _raw(self, content: bytes, kind: str, status: int) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - base class
            """Quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "test"}


def _completion(server: Server) -> dict[str, Any]:
    message = {"role": "assistant", "content": server.answer}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]
    }  # fmt: skip


def _chunk(text: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {
        "id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m",
        "choices": [choice],
    }  # fmt: skip
