"""How a local service's events look: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from triptych_operator.local.events import Event, Happening


def sentence(event: Event) -> str:
    """One event as a line of text without the process's name."""
    took = f"{event.seconds:.1f} s"
    match event.happening:
        case Happening.STARTING:
            return "starting"
        case Happening.READY:
            return f"ready in {took} at {event.detail}"
        case Happening.ENDED:
            return f"ended: {event.detail}\n  restart in {event.seconds:.0f} s"
        case Happening.DRAINING:
            return "draining"
        case Happening.STOPPED:
            return f"stopped in {took}"
        case Happening.KILLED:
            return f"killed: it had not ended after {took}"


@dataclass(slots=True)
class _Row:
    since: float
    event: Event
    spinner: Spinner


class Progress:
    """Shows events of processes: plain lines, and while it is entered in a terminal, a table.

    The table is drawn in place with the seconds running for each process that starts or drains;
    what must stay readable (an end, a restart) is printed above it.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, _Row] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._rows.clear()
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._table,
                refresh_per_second=8,
                redirect_stdout=False,  # it may be a pipe that somebody reads
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def report(self, event: Event) -> None:
        """Shows one event."""
        self._rows[event.process] = _Row(time.monotonic(), event, Spinner("dots", style="cyan"))
        if self._live is None or event.happening is Happening.ENDED:
            line = f"{event.process:<12} {sentence(event)}"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, row in self._rows.items():
            table.add_row(self._mark(row), Text(name, style="bold"), self._state(row))
        return table

    @staticmethod
    def _mark(row: _Row) -> Spinner | Text:
        match row.event.happening:
            case Happening.STARTING | Happening.DRAINING:
                return row.spinner
            case Happening.READY | Happening.STOPPED:
                return Text("✓", style="green")
            case _:
                return Text("✗", style="red")

    @staticmethod
    def _state(row: _Row) -> Text:
        text = sentence(row.event).splitlines()[0]
        if row.event.happening in (Happening.STARTING, Happening.DRAINING):
            text += f" {time.monotonic() - row.since:.0f} s"
        return Text(text)
