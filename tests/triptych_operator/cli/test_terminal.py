from io import StringIO

import pytest
from rich.console import Console
from triptych_operator.cli.terminal import Progress, sentence
from triptych_operator.local.events import Event, Happening

READY = Event("encoder-0", Happening.READY, 4.21, "127.0.0.1:5")
ENDED = Event("encoder-0", Happening.ENDED, 2, "exit status 3\n  | [red]no markup[/red]")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event("encoder-0", Happening.STARTING), "starting"),
        (READY, "ready in 4.2 s at 127.0.0.1:5"),
        (ENDED, "ended: exit status 3\n  | [red]no markup[/red]\n  restart in 2 s"),
        (Event("encoder-0", Happening.DRAINING), "draining"),
        (Event("encoder-0", Happening.STOPPED, 0.5), "stopped in 0.5 s"),
        (Event("encoder-0", Happening.KILLED, 65), "killed: it had not ended after 65.0 s"),
    ],
)
def test_every_event_reads_as_a_sentence(event: Event, text: str) -> None:
    assert sentence(event) == text


def test_outside_a_terminal_every_event_is_a_plain_line() -> None:
    output = StringIO()
    progress = Progress(Console(file=output, width=20))
    with progress:
        progress.report(READY)
    progress.report(ENDED)
    assert output.getvalue().splitlines() == [
        "encoder-0    ready in 4.2 s at 127.0.0.1:5",
        "encoder-0    ended: exit status 3",
        "  | [red]no markup[/red]",
        "  restart in 2 s",
    ]


def test_in_a_terminal_a_process_has_one_row_and_its_end_stays_above() -> None:
    output = StringIO()
    console = Console(file=output, width=80, height=20, force_terminal=True, color_system=None)
    with Progress(console) as progress:
        progress.report(ENDED)
        progress.report(READY)
    above, _, table = output.getvalue().rpartition("restart in 2 s\n")
    assert "[red]no markup[/red]" in above
    assert table.count("ready in 4.2 s at 127.0.0.1:5") == 1
