"""One line to the supervisor, one line back."""

from __future__ import annotations

from pathlib import Path

import pytest
from node import control


def test_a_line_is_answered_by_a_line(tmp_path: Path) -> None:
    socket = tmp_path / "control.sock"
    control.serve(socket, lambda line: f"heard {line}")
    assert control.ask(socket, "restart kubelet") == "heard restart kubelet"
    assert control.ask(socket, "status") == "heard status"


def test_an_answer_that_fails_is_no_answer_and_the_next_one_comes(tmp_path: Path) -> None:
    def answer(line: str) -> str:
        if line == "bad":
            raise ValueError(line)
        return "good"

    socket = tmp_path / "control.sock"
    control.serve(socket, answer)
    assert control.ask(socket, "bad") == ""
    assert control.ask(socket, "fine") == "good"


def test_where_nobody_listens_asking_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        control.ask(tmp_path / "control.sock", "status")
