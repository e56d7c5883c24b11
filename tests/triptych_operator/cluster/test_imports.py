"""What the operator's process loads of the client of Kubernetes."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from triptych_operator.cluster.imports import spare_synchronous_client
{}
import triptych_operator.controller.process
from kubernetes.aio import client, config
assert client.ApiClient and config.load_kube_config and config.load_incluster_config
print([name for name in ("requests", "oauthlib", "websocket") if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("first", "loaded"),
    [
        ("spare_synchronous_client()", "[]"),
        ("import kubernetes; spare_synchronous_client()", "['requests', 'oauthlib', 'websocket']"),
    ],
)
def test_only_the_asyncio_edition_is_loaded_unless_the_other_is_already(
    first: str, loaded: str
) -> None:
    command = [sys.executable, "-c", PROGRAM.format(first)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == f"{loaded}\n"
