import base64
from pathlib import Path

import pytest
from openai_server import serving
from triptych_operator.cli import main


def test_the_answer_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert main(["ask", "--url", server.url, "What is this?"]) == 0
    assert capsys.readouterr().out == "a red circle\n"
    [body] = server.bodies
    assert body["model"] == "shapes"
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}]}
    ]


def test_pictures_go_before_the_question_in_their_order(tmp_path: Path) -> None:
    for name in ("a.png", "b.jpg", "c"):
        (tmp_path / name).write_bytes(name.encode())
    images = [
        part for name in ("a.png", "b.jpg", "c") for part in ("--image", str(tmp_path / name))
    ]
    with serving() as server:
        assert main(["ask", "--url", server.url, "--model", "other", *images, "And?"]) == 0
    [body] = server.bodies
    *pictures, question = body["messages"][0]["content"]
    assert [picture["image_url"]["url"] for picture in pictures] == [
        "data:image/png;base64," + base64.b64encode(b"a.png").decode(),
        "data:image/jpeg;base64," + base64.b64encode(b"b.jpg").decode(),
        "data:application/octet-stream;base64," + base64.b64encode(b"c").decode(),
    ]
    assert (question["text"], body["model"]) == ("And?", "other")


def test_times_and_counts_follow_the_answer_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert main(["ask", "--url", server.url, "--times", "What?"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["a", "red", "circle"],
        ["encode", "12.5", "ms"],
        ["visual_tokens", "16"],
    ]


def test_a_server_without_times_says_that_none_came(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.report = {}
        assert main(["ask", "--url", server.url, "--times", "What?"]) == 0
    assert "no times came back" in capsys.readouterr().out


def test_what_the_server_refuses_is_told_in_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.status, server.answer = 413, "the picture is too large: send at most 20 MiB"
        assert main(["ask", "--url", server.url, "What?"]) == 1
    expected = f"triptych: {server.url} answered 413: {server.answer}\n"
    assert capsys.readouterr().err == expected


def test_a_server_without_models_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        server.models = ()
        assert main(["ask", "--url", server.url, "What?"]) == 1
    assert "lists no model; name one with --model" in capsys.readouterr().err


def test_no_server_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        pass  # its port is free again
    assert main(["ask", "--url", server.url, "What?"]) == 1
    assert "Start one with `triptych up -f" in capsys.readouterr().err


def test_a_missing_picture_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "absent.png"
    assert main(["ask", "--image", str(path), "What?"]) == 1
    expected = f"triptych: cannot read the picture {path}: No such file or directory\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("url", ["ftp://x", "nowhere", "http://"])
def test_what_is_no_url_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "--url", url, "What?"]) == 1
    assert capsys.readouterr().err.startswith("triptych: ")
