from __future__ import annotations

import logging
import sys

import pytest
from triptych_worker.serving.logs import REQUEST_ID, KeyValueFormatter


def record(message: str, *arguments: object, level: int = logging.INFO) -> logging.LogRecord:
    made = logging.LogRecord("triptych_worker.x", level, __file__, 1, message, arguments, None)
    made.created, made.msecs = 0.25, 250
    return made


def test_a_record_is_one_line_of_fields() -> None:
    line = KeyValueFormatter().format(record("%d leases ended", 3))
    assert line == (
        'time=1970-01-01T00:00:00.250Z level=info logger=triptych_worker.x msg="3 leases ended"'
    )


def test_lines_of_a_request_name_it() -> None:
    token = REQUEST_ID.set("request-1")
    try:
        assert KeyValueFormatter().format(record("done")).endswith(" msg=done request=request-1")
    finally:
        REQUEST_ID.reset(token)


@pytest.mark.parametrize("message", ["two\nlines", 'a "quote"', "a=b", "", "back\\slash"])
def test_no_message_can_forge_a_line_or_a_field(message: str) -> None:
    line = KeyValueFormatter().format(record(message))
    assert "\n" not in line
    assert line.partition(" msg=")[2][0] == line[-1] == '"'


def test_a_traceback_is_one_field_of_the_same_line() -> None:
    try:
        int("x")
    except ValueError:
        failed = record("failed", level=logging.ERROR)
        failed.exc_info = sys.exc_info()
    line = KeyValueFormatter().format(failed)
    assert "\n" not in line
    assert " traceback=" in line
    assert "ValueError: invalid literal for int()" in line
