"""What a kubelet cannot run is told by the resource's status: which tier, and why."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from node.one_node import OneNode
from product import Object, Product, product

TOLD_SECONDS = 240.0  # a program that ends is started again after 10 s, and then given up on

SMALL = {"requests": {"cpu": "20m", "memory": "32Mi"}}
# Enough for the interpreter, and not for torch.
TOO_SMALL = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "48Mi"}}

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(3600),  # the first time builds Kubernetes and the images
]


@pytest.fixture(scope="module")
def installed(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(node, tmp_path_factory.mktemp("helm")) as made:
        yield made


def service(name: str, tiers: Object, topology: str = "FullSplit", **spec: Object) -> Object:
    return {
        "apiVersion": "triptych.dev/v1alpha1",
        "kind": "MultimodalService",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": "builtin://shapes", "revision": "1", "servedName": name},
            "topology": topology,
            "tiers": tiers,
            **spec,
        },
    }


MISSING_MODEL = {"source": "builtin://shapes", "revision": "9", "servedName": "modelless"}
MISSING_CLAIM = {"source": "pvc://weights/shapes", "revision": "1", "servedName": "claimless"}
TROUBLED = (
    service("cramped", {"encoder": {"resources": TOO_SMALL}, "prefill": {"resources": SMALL}}),
    service("imageless", {}, "Fused", engine={"image": "triptych.invalid/no-worker:1"}),
    service("claimless", {}, "Fused", model=MISSING_CLAIM),
    service("modelless", {"fused": {"resources": SMALL}}, "Fused", model=MISSING_MODEL),
)


@pytest.fixture(scope="module")
def troubled(installed: Product) -> Product:
    """All services that cannot run, at once: each is told of after a while."""
    for made in TROUBLED:
        installed.node.kubectl("apply", "-f", "-", manifest=json.dumps(made))
    return installed


def told(troubled: Product, name: str, condition: str, reason: str, saying: str) -> str:
    """Waits until the ``condition`` of a service is false for ``reason``; the message, which has
    ``saying`` in it."""
    deadline = time.monotonic() + TOLD_SECONDS
    while True:
        found = troubled.resource(name).get("status", {}).get("conditions", ())
        for one in found:
            message: str = one["message"]
            wanted = (one["type"], one["status"], one["reason"]) == (condition, "False", reason)
            if wanted and saying in message:
                return message
        assert time.monotonic() < deadline, json.dumps(found, indent=1)
        time.sleep(0.5)


def test_a_tier_whose_memory_is_too_small_is_named(troubled: Product) -> None:
    """On a busy machine containerd may miss why a program was killed; not each time, though."""
    message = told(troubled, "cramped", "EncoderReady", "CrashLoopBackOff", "OOMKilled")
    assert "exit status 137" in message


def test_an_image_that_is_missing_is_named(troubled: Product) -> None:
    missing = "triptych.invalid/no-worker:1"
    told(troubled, "imageless", "FusedReady", "ImagePullBackOff", missing)


def test_a_claim_that_is_missing_is_named(troubled: Product) -> None:
    missing = 'persistentvolumeclaim "weights" not found'
    told(troubled, "claimless", "FusedReady", "Unschedulable", missing)


def test_a_model_that_is_missing_is_named(troubled: Product) -> None:
    missing = "has no revision '9'; there is: 1"
    told(troubled, "modelless", "FusedReady", "CrashLoopBackOff", missing)
