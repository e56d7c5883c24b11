"""What the chart has Prometheus scrape and record, before its operator's own definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from cluster.control_plane import ControlPlane
from tools.programs import CHART, Helm
from triptych_operator.desired import prometheus


def by_kind(rendering: Helm, *values: str) -> dict[str, dict[str, Any]]:
    """The objects of the Prometheus operator, by kind."""
    objects = rendering.objects(*(f"--set={value}" for value in values))
    return {one["kind"]: one for one in objects if one["apiVersion"].startswith("monitoring.")}


def arguments(rendering: Helm, *values: str) -> list[str]:
    objects = rendering.objects(*(f"--set={value}" for value in values))
    [deployment] = [one for one in objects if one["kind"] == "Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return [*container["command"]]


def test_prometheus_scrapes_and_records_where_it_is_to_serve_signals(rendering: Helm) -> None:
    found = by_kind(
        rendering, "autoscaling.provider=prometheus", "autoscaling.prometheus.labels.release=p"
    )
    assert found["PrometheusRule"]["spec"]["groups"] == prometheus.rule_groups()
    monitor = found["PodMonitor"]["spec"]
    assert monitor == {**prometheus.pod_monitor_spec(), "namespaceSelector": {"any": True}}
    assert all(one["metadata"]["labels"]["release"] == "p" for one in found.values())


def test_keda_asks_the_prometheus_that_is_named_and_nothing_is_recorded(rendering: Helm) -> None:
    values = (
        "autoscaling.provider=keda",
        "autoscaling.prometheus.url=http://p:1",
        "watch.namespaces={models}",
    )
    found = by_kind(rendering, *values)
    assert set(found) == {"PodMonitor"}
    assert found["PodMonitor"]["spec"]["namespaceSelector"] == {"matchNames": ["models"]}
    given = arguments(rendering, *values)
    assert {"--metrics=keda", "--prometheus-url=http://p:1"} <= set(given)


@pytest.mark.parametrize("provider", ["embedded", "none"])
def test_nobody_else_needs_the_prometheus_operator(rendering: Helm, provider: str) -> None:
    assert by_kind(rendering, f"autoscaling.provider={provider}") == {}


def test_only_with_keda_may_the_operator_touch_its_objects(rendering: Helm) -> None:
    def groups(provider: str) -> set[str]:
        objects = rendering.objects(f"--set=autoscaling.provider={provider}")
        rules = [rule for one in objects for rule in one.get("rules", ())]
        return {group for rule in rules for group in rule["apiGroups"]}

    assert "keda.sh" in groups("keda")
    assert "keda.sh" not in groups("embedded") | groups("prometheus") | groups("none")


def test_the_prometheus_operator_takes_them(control_plane: ControlPlane, rendering: Helm) -> None:
    found = by_kind(rendering, "autoscaling.provider=prometheus")
    for manifest in found.values():
        manifest["metadata"]["namespace"] = "default"
        text = json.dumps(manifest)
        control_plane.kubectl(
            "create", "--dry-run=server", "--validate=strict", "-f", "-", manifest=text
        )


def test_the_adapter_is_told_of_what_is_recorded() -> None:
    path = CHART.parents[1] / "deploy/prometheus/adapter-values.yaml"
    assert yaml.safe_load(path.read_text()) == prometheus.adapter_values()
