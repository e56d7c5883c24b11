"""Whole manifests against files that were read by eye. UPDATE_GOLDEN=1 writes them anew."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from mms_builders import service
from triptych_operator.api.manifests import read_service
from triptych_operator.api.service import MultimodalService
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.state import AUTOSCALERS, desired_state
from triptych_operator.desired.text import as_yaml

GOLDEN = Path(__file__).with_name("golden")
EXAMPLES = Path(__file__).parents[3] / "examples"
PLATFORM = Platform(image="triptych-worker:test", operator_namespace="triptych-system")

CASES: dict[str, MultimodalService] = {
    "shapes": read_service(EXAMPLES / "shapes.yaml"),
    "fused": read_service(EXAMPLES / "fused.yaml"),
    "encode-split": read_service(EXAMPLES / "encode-split.yaml"),
    "gpu-autoscaled": service(
        model={
            "source": "hf://Qwen/Qwen2.5-VL-7B-Instruct",
            "revision": "cc594898137f460bfe9f0759e9844b3ce807cfb5",
            "servedName": "qwen",
            "dtype": "bfloat16",
            "downloadClaim": "hub",
            "encoder": {"source": "pvc://encoders/qwen/v2", "revision": "2"},
        },
        engine={"image": "host.example/worker:2", "args": ["--host", "::"]},
        tiers={
            "encoder": {
                "autoscaling": {
                    "min": 2,
                    "max": 8,
                    "metrics": [
                        {"signal": "BacklogTokens", "target": 20000},
                        {"signal": "QueueWait", "target": "500m"},
                    ],
                    "behavior": {
                        "scaleDown": {
                            "stabilizationWindowSeconds": 0,
                            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                        }
                    },
                },
                "resources": {
                    "requests": {"cpu": 2, "memory": "8Gi"},
                    "limits": {"nvidia.com/gpu": 1},
                },
            },
            "decode": {
                "replicas": 3,
                "drain": {"timeout": "1500ms"},
                "template": {
                    "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x"}},
                    "spec": {
                        "nodeSelector": {"gpu": "big"},
                        "tolerations": [{"key": "gpu", "operator": "Exists"}],
                        "priorityClassName": "high",
                        "containers": [
                            {"name": "triptych", "env": [{"name": "UCX_TLS", "value": "tcp"}]},
                            {"name": "sidecar", "image": "sidecar:1"},
                        ],
                    },
                },
            },
            "gateway": {
                "autoscaling": {
                    "max": 4,
                    "metrics": [{"signal": "CPUUtilization", "target": 70}],
                }
            },
        },
        transfer={"transport": "grpc"},
    ),
}


@pytest.mark.parametrize("metrics", list(Metrics))
def test_autoscalers_are_those_that_were_reviewed_whatever_they_go_by(metrics: Metrics) -> None:
    resource = read_service(EXAMPLES / "autoscaled.yaml")
    made = desired_state(resource, replace(PLATFORM, metrics=metrics))
    text = as_yaml([one for one in made if one["kind"] in AUTOSCALERS])
    compare(text, GOLDEN / f"autoscalers/{metrics}.yaml")


@pytest.mark.parametrize("name", CASES)
def test_the_manifests_are_those_that_were_reviewed(name: str) -> None:
    compare(as_yaml(desired_state(CASES[name], PLATFORM)), GOLDEN / f"{name}.yaml")


def compare(text: str, path: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
