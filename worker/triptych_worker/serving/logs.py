"""Structured logs: one ``key=value`` line per record on stderr, with the request it belongs to.

Prompts, answers and pictures are never logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Final

# Set where a request's message is read; tasks that the request starts inherit it.
REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")


class KeyValueFormatter(logging.Formatter):
    """``time=... level=... request=... logger=... msg="..."``, a traceback in one field."""

    def format(self, record: logging.LogRecord) -> str:
        """The whole line; line breaks in it are escaped, so one record is one line."""
        fields = {
            "time": self._time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if request := REQUEST_ID.get():
            fields["request"] = request
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())

    @staticmethod
    def _time(record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"


def log_to_stderr(level: int = logging.INFO) -> None:
    """Sends every logger of the process to stderr in this format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _quoted(value: str) -> str:
    plain = value.isprintable() and not set(value) & set(' "=\\')
    return value if plain and value else json.dumps(value, ensure_ascii=False)
