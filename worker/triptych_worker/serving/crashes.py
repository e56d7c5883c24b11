"""What happens when a thread of ours dies: the process ends, so that another takes its place.

A stage whose thread is gone would wait for ever while its health says SERVING.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_CRASHED: Final = 1


def end_with_any_thread() -> None:
    """From now on an exception that ends a thread ends the process, after it is logged."""
    threading.excepthook = _end


def _end(failure: threading.ExceptHookArgs) -> None:
    name = failure.thread.name if failure.thread else "a thread"
    error = failure.exc_value
    _LOG.critical("%s died, and the process with it", name, exc_info=error)
    sys.stderr.flush()
    os._exit(_CRASHED)
