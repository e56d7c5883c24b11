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


def told(installed: Product, made: Object, condition: str, reason: str) -> str:
    """Applies a service and waits until its ``condition`` is false for ``reason``; the message. The
    service is gone afterwards."""
    name = made["metadata"]["name"]
    installed.node.kubectl("apply", "-f", "-", manifest=json.dumps(made))
    try:
        return _message(installed, name, condition, reason)
    finally:
        installed.node.kubectl("delete", "mms", name, "--wait=true")


def _message(installed: Product, name: str, condition: str, reason: str) -> str:
    deadline = time.monotonic() + TOLD_SECONDS
    while True:
        found = installed.resource(name).get("status", {}).get("conditions", ())
        for one in found:
            if (one["type"], one["status"], one["reason"]) == (condition, "False", reason):
                message: str = one["message"]
                return message
        assert time.monotonic() < deadline, json.dumps(found, indent=1)
        time.sleep(0.5)


def test_a_tier_whose_memory_is_too_small_is_named(installed: Product) -> None:
    tiers = {"encoder": {"resources": TOO_SMALL}, "prefill": {"resources": SMALL}}
    message = told(installed, service("cramped", tiers), "EncoderReady", "CrashLoopBackOff")
    assert "OOMKilled" in message
    assert "exit status 137" in message


def test_an_image_that_is_missing_is_named(installed: Product) -> None:
    made = service("imageless", {}, "Fused", engine={"image": "triptych.invalid/no-worker:1"})
    message = told(installed, made, "FusedReady", "ImagePullBackOff")
    assert "triptych.invalid/no-worker:1" in message


def test_a_claim_that_is_missing_is_named(installed: Product) -> None:
    model = {"source": "pvc://weights/shapes", "revision": "1", "servedName": "claimless"}
    made = service("claimless", {}, "Fused", model=model)
    message = told(installed, made, "FusedReady", "Unschedulable")
    assert 'persistentvolumeclaim "weights" not found' in message


def test_a_model_that_is_missing_is_named(installed: Product) -> None:
    model = {"source": "builtin://shapes", "revision": "9", "servedName": "modelless"}
    made = service("modelless", {"fused": {"resources": SMALL}}, "Fused", model=model)
    message = told(installed, made, "FusedReady", "CrashLoopBackOff")
    assert "has no revision '9'; there is: 1" in message
