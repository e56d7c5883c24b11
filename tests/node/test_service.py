"""What `make cluster-demo` leaves: examples/shapes.yaml on real pods, with right answers through
the Service, also while what it runs on is taken away."""

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
from product import Product, demonstrated
from steady_load import steady_load
from triptych_contract.names import Metric, Port
from triptych_operator.cli.manifests import DEFAULT_IMAGE

READY_SECONDS = 600  # six processes load torch on two cores; an idle machine takes 30
# Until no more connections are made to a gateway that is gone: kubelet, API server and kube-proxy
# take turns at it, three seconds on an idle machine.
SERVICE_KNOWS_SECONDS = 15.0
LONG = tuple(about(seed, "describe") for seed in range(9_000_020, 9_000_026))
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
def demo(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Product, str]]:
    """The operator and the service of the example on the node, and what the demonstration said."""
    with demonstrated(node, tmp_path_factory.mktemp("helm")) as made:
        made[0].until("Ready", "CachesCoherent")
        yield made


@pytest.fixture(scope="module")
def product(demo: tuple[Product, str]) -> Product:
    return demo[0]


@pytest.fixture(scope="module")
def service(product: Product) -> OneNode:
    return product.node


@pytest.fixture(scope="module")
def client(product: Product) -> openai.OpenAI:
    return openai.OpenAI(base_url=product.url(), api_key="none", timeout=120, max_retries=0)


def test_the_demonstration_says_what_it_did_and_how_to_end_it(demo: tuple[Product, str]) -> None:
    told = demo[1]
    assert "10 of 10 answers were right." in told
    assert "2/2   1/1   2/2" in told
    assert told.rstrip().endswith("To end it: PROVIDER=node make cluster-down")


def test_helms_own_test_is_a_pod_that_asked_about_a_picture(demo: tuple[Product, str]) -> None:
    """The picture is charts/triptych/files/picture.png."""
    logs = demo[1].partition("POD LOGS: triptych-operator-test-ask (ask)\n")[2]
    assert logs.startswith("a green circle is at top left.\n")


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


def test_pods_run_as_nobody_without_a_token_and_cannot_write_their_root(service: OneNode) -> None:
    program = (
        "import json, os, pathlib\n"
        "def writable(folder):\n"
        "    try:\n"
        "        pathlib.Path(folder, 'x').touch()\n"
        "    except OSError:\n"
        "        return False\n"
        "    return True\n"
        "folders = ('/', '/opt/code', '/etc/triptych', '/tmp', '/var/cache/triptych')\n"
        "token = os.path.exists('/var/run/secrets/kubernetes.io')\n"
        "print(json.dumps([os.getuid(), os.getgid(), [f for f in folders if writable(f)], token]))"
    )
    for tier in ("encoder", "prefill", "decode", "gateway"):
        answer = service.kubectl("exec", f"deployment/shapes-{tier}", "--", "python", "-c", program)
        assert json.loads(answer) == [65532, 65532, ["/tmp", "/var/cache/triptych"], False]


def test_the_account_of_a_service_may_do_what_any_account_may(service: OneNode) -> None:
    groups = ("--as-group=system:serviceaccounts", "--as-group=system:authenticated")
    shapes, nobody = (
        service.kubectl(*("auth", "can-i", "--list", "--no-headers", *groups, f"--as={account}"))
        for account in (
            "system:serviceaccount:default:shapes",
            "system:serviceaccount:default:nobody",
        )
    )
    assert "selfsubjectaccessreviews" in shapes
    assert shapes == nobody


def test_a_pod_of_no_tier_reaches_no_stage_by_the_operators_labels(service: OneNode) -> None:
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
        "--labels=app.kubernetes.io/name=triptych-operator",
        *("--command", "--", "python", "-c", program),
    )
    try:
        done = "--for=jsonpath={.status.phase}=Succeeded"
        service.kubectl("wait", done, "pod/outsider", "--timeout=50s")
        reached = json.loads(service.kubectl("logs", "outsider"))
    finally:
        service.kubectl("delete", "pod", "outsider", "--grace-period=0", "--force")
    assert reached == ["shapes-gateway:8000", "shapes-encoder:9090"]


@pytest.mark.parametrize("program", ["kubelet", "kube-apiserver", "containerd"])
def test_serving_goes_on_while_a_program_of_the_node_restarts(
    product: Product, program: str
) -> None:
    before = product.pods()
    with steady_load(product.url(), *LONG) as load:
        load.wait_for(4, 60)
        product.node.restart(program)
        load.wait_for(8, 60)
    assert load.failed == load.wrong == []
    _wait_available(product.node)
    assert product.pods() == before
    restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert set(product.node.kubectl("get", "pods", "-o", restarts).split()) == {"0"}


@pytest.fixture(scope="module")
def doubled(product: Product) -> Product:
    """Two pods of every tier."""
    product.change({"tiers": {"prefill": {"replicas": 2}, "gateway": {"replicas": 2}}})
    product.until("Ready")
    return product


@pytest.mark.parametrize("tier", ["encoder", "prefill", "decode", "gateway"])
def test_a_pod_killed_under_load_costs_at_most_what_it_was_answering(
    doubled: Product, tier: str
) -> None:
    """Others do over what an encoder or a prefill was doing. What a decode has begun to tell is
    lost; and with a gateway its connections, also those made until the Service knows."""
    pod, uid = next(iter(doubled.pods(tier).items()))
    with steady_load(doubled.url(), *LONG, threads=4) as load:
        load.wait_for(4, 60)
        killed = time.monotonic()
        doubled.node.kill(uid)
        load.wait_for(12, 60)  # the others answer at once
        doubled.wait_restarted(pod)
        load.wait_for(4, 60)
    assert load.wrong == []
    assert all(one.retryable for one in load.failed)
    late = SERVICE_KNOWS_SECONDS if tier == "gateway" else 0.0
    assert [one for one in load.failed if one.sent > killed + late or one.ended < killed] == []
    assert not load.failed or tier in {"decode", "gateway"}


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
