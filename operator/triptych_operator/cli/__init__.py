"""The ``triptych`` command. ``main`` parses and turns errors into one line and an exit status."""

from triptych_operator.cli.main import main

__all__ = ["main"]
