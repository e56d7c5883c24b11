"""A stand-in program for tests of the supervisor: really a process, ready within milliseconds.

``python programs.py BEHAVIOUR CONFIG`` listens on the ports of its configuration, prints the ready
line and then does what BEHAVIOUR says. Everything it is told by signals it writes to CONFIG.trace.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def main(behaviour: str, path: Path) -> None:
    listen = json.loads(path.read_text())["listen"]
    trace = path.with_suffix(".trace")
    sockets = {}
    for kind in ("grpc", "metrics", "http"):
        # Tests keep ports for those that come back: ``Watched`` in test_supervisor.py.
        address = ("127.0.0.1", listen[f"{kind}_port"])
        sockets[kind] = socket.create_server(address, reuse_port=True)
    if behaviour == "fails":
        sys.exit("cannot load: the folder is empty")
    signal.signal(signal.SIGTERM, lambda *_: end(trace, behaviour))
    if behaviour != "silent":
        print(f"warming up, niceness {os.nice(0)}")
        addresses = {kind: f"127.0.0.1:{it.getsockname()[1]}" for kind, it in sockets.items()}
        if "gateway" not in path.name:
            addresses["http"] = ""
        print(json.dumps({"tier": path.stem, **addresses}), flush=True)
    if behaviour == "dies":
        time.sleep(0.05)
        sys.exit(3)
    while True:
        time.sleep(60)


def end(trace: Path, behaviour: str) -> None:
    with trace.open("a") as file:
        file.write(f"{time.monotonic()}\n")
    if behaviour != "stubborn":
        sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
