"""``python -m node up | down | status | restart PROGRAM | load FOLDER NAME``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from node.host_network import NetworkTakenError
from node.images import Image
from node.one_node import NodeError, OneNode
from node.processes import CommandError

USAGE = f"usage: {__doc__}"


def main(arguments: list[str]) -> int:
    """Does one command; 0, or 1 with a message, 2 for wrong usage, or 130 when interrupted."""
    try:
        return _do(arguments)
    except (NodeError, CommandError, NetworkTakenError, TimeoutError) as error:
        sys.stderr.write(f"node: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("node: interrupted\n")
        return 130


def _do(arguments: list[str]) -> int:
    started = time.monotonic()
    node = OneNode()
    match arguments:
        case ["up"]:
            prepared = time.monotonic()
            node.up()
            sys.stderr.write(
                f"node: ready after {time.monotonic() - prepared:.0f} s "
                f"(and {prepared - started:.0f} s to see that all is installed and built)\n"
            )
            print(f"export KUBECONFIG={node.kubeconfig}")
        case ["down"]:
            node.down()
            sys.stderr.write("node: down\n")
        case ["status"]:
            print(node.state)
        case ["restart", program]:
            node.restart(program)
        case ["load", folder, name]:
            sent = node.load(Image.from_layout(Path(folder), name))
            took = time.monotonic() - started
            sys.stderr.write(f"node: {name}: {sent / 1e6:.1f} MB in {took:.1f} s\n")
        case _:
            sys.stderr.write(USAGE + "\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
