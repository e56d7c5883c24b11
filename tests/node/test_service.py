"""What becomes of examples/shapes.yaml on real pods: right answers through the Service."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import openai
import pytest
from node.one_node import OneNode
from node_questions import Question, about, about_two, ask
from product import EXAMPLE, product
from triptych_contract.names import Metric, Port
from triptych_operator.cli.manifests import DEFAULT_IMAGE

READY_SECONDS = 600  # six processes load torch on two cores; an idle machine takes 30
QUESTIONS = [
    about(9_000_001, "at"),
    about(9_000_002, "count"),
    about(9_000_003, "colour"),
    about_two(9_000_001, 9_000_002),
]

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(3600),  # the first time builds Kubernetes and the images
]


@pytest.fixture(scope="module")
def service(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    """The node with the operator, and the service of the example on it, ready."""
    with product(node, tmp_path_factory.mktemp("helm")) as installed:
        node.kubectl("apply", "-f", str(EXAMPLE))
        installed.until("Ready", "CachesCoherent")
        yield node


@pytest.fixture(scope="module")
def client(service: OneNode) -> openai.OpenAI:
    where = "jsonpath={.spec.clusterIP}"
    address = service.kubectl("get", "service", "shapes-gateway", "-o", where)
    url = f"http://{address}:8000/v1"
    return openai.OpenAI(base_url=url, api_key="none", timeout=120, max_retries=0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_questions_about_pictures_are_answered_right(
    client: openai.OpenAI, question: Question, stream: bool
) -> None:
    assert ask(client, question, stream=stream) == question.answer


def test_a_question_without_a_picture_is_answered(client: openai.OpenAI) -> None:
    answer = ask(client, Question((), "Hello", ""))
    assert answer == "hello! ask me about a picture of coloured shapes."


def test_embeddings_moved_from_encoder_to_prefill(service: OneNode, client: openai.OpenAI) -> None:
    ask(client, about(9_000_004, "describe"))
    assert sum(_embedding_bytes(service, "prefill", "received")) > 0
    assert sum(_embedding_bytes(service, "encoder", "sent")) > 0
    assert _embedding_bytes(service, "gateway", "received") == []


def test_pods_run_as_nobody_and_cannot_write_their_root(service: OneNode) -> None:
    program = (
        "import json, os, pathlib\n"
        "def writable(folder):\n"
        "    try:\n"
        "        pathlib.Path(folder, 'x').touch()\n"
        "    except OSError:\n"
        "        return False\n"
        "    return True\n"
        "folders = ('/', '/opt/code', '/etc/triptych', '/tmp', '/var/cache/triptych')\n"
        "print(json.dumps([os.getuid(), os.getgid(), [f for f in folders if writable(f)]]))\n"
    )
    for tier in ("encoder", "prefill", "decode", "gateway"):
        answer = service.kubectl("exec", f"deployment/shapes-{tier}", "--", "python", "-c", program)
        assert json.loads(answer) == [65532, 65532, ["/tmp", "/var/cache/triptych"]]


def test_a_pod_of_no_tier_reaches_no_stage(service: OneNode) -> None:
    """The policies say so, and kube-router holds them here."""
    program = (
        "import json, socket, sys\n"
        "def reached(host, port):\n"
        "    try:\n"
        "        socket.create_connection((host, port), 3).close()\n"
        "    except OSError:\n"
        "        return False\n"
        "    return True\n"
        "ports = [('shapes-encoder', 50051), ('shapes-prefill', 50051), ('shapes-decode', 50051),\n"
        "         ('shapes-gateway', 8000), ('shapes-encoder', 9090)]\n"
        "print(json.dumps([f'{h}:{p}' for h, p in ports if reached(h, p)]))\n"
    )
    service.kubectl(
        *("run", "outsider", f"--image={DEFAULT_IMAGE}", "--restart=Never"),
        *("--command", "--", "python", "-c", program),
    )
    try:
        done = "--for=jsonpath={.status.phase}=Succeeded"
        service.kubectl("wait", done, "pod/outsider", "--timeout=50s")
        reached = json.loads(service.kubectl("logs", "outsider"))
    finally:
        service.kubectl("delete", "pod", "outsider", "--grace-period=0", "--force")
    assert reached == ["shapes-gateway:8000", "shapes-encoder:9090"]


def test_serving_goes_on_while_the_nodes_programs_restart(
    service: OneNode, client: openai.OpenAI
) -> None:
    question = QUESTIONS[0]
    for program in ("kubelet", "kube-apiserver", "containerd"):
        service.restart(program)
        assert ask(client, question) == question.answer
    _wait_available(service)
    restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert set(service.kubectl("get", "pods", "-o", restarts).split()) == {"0"}


def _wait_available(node: OneNode) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            node.kubectl(
                "wait", "--for=condition=Available", "deployment", "--all", "--timeout=20s"
            )
        except subprocess.CalledProcessError as error:
            if time.monotonic() > deadline:
                pods = node.kubectl("get", "pods", "-o", "wide")
                raise AssertionError(f"not available: {error.stderr}\n{pods}") from error
        else:
            return


def _embedding_bytes(node: OneNode, tier: str, direction: str) -> list[float]:
    """Bytes of embeddings that the pods of a tier moved, one number per pod and transport."""
    selector = f"--selector=app.kubernetes.io/component={tier}"
    addresses = node.kubectl("get", "pods", selector, "-o", "jsonpath={.items[*].status.podIP}")
    wanted = (f'{Metric.TRANSFER_BYTES}{{direction="{direction}"', 'kind="embedding"')
    return [
        float(line.rpartition(" ")[2])
        for address in addresses.split()
        for line in _metrics(address)
        if all(part in line for part in wanted)
    ]


def _metrics(address: str) -> list[str]:
    """A pod's metrics: this machine reaches pods through the node."""
    url = f"http://{address}:{Port.METRICS}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read(), "utf-8").splitlines()
