import re
from typing import Any

import promql_parser
from mms_builders import service
from triptych_contract.names import Tier
from triptych_operator.api.autoscaling import MEASURED
from triptych_operator.desired import naming
from triptych_operator.desired.autoscalers import autoscaler
from triptych_operator.desired.deployments import deployment
from triptych_operator.desired.platform import Metrics, Platform
from triptych_operator.desired.prometheus import adapter_values, pod_monitor_spec, rule_groups

PLATFORM = Platform("worker:1", metrics=Metrics.PROMETHEUS)
CONFIG = 64 * "0"


def rules() -> list[Any]:
    [group] = rule_groups()
    found: Any = group
    return list(found["rules"])


def test_what_is_recorded_is_what_autoscalers_ask_for() -> None:
    recorded = {rule["record"] for rule in rules()}
    for tier in (Tier.ENCODER, Tier.PREFILL, Tier.DECODE, Tier.GATEWAY):
        resource = service(**{f"tiers__{tier}__autoscaling": {"max": 2}})
        given = resource.spec.tier(tier).autoscaling
        assert given is not None
        made: Any = autoscaler(resource, tier, given, PLATFORM)
        asked = {one["external"]["metric"]["name"] for one in made["spec"]["metrics"]}
        assert asked <= recorded
    assert len(recorded) == len(rules()) == sum(len(signals) for signals in MEASURED.values())


def test_every_rule_can_be_read_and_is_a_name_that_prometheus_takes() -> None:
    for rule in rules():
        promql_parser.parse(rule["expr"])
        assert re.fullmatch(r"[a-z_]+", rule["record"])


def test_the_adapter_serves_each_of_them_by_namespace() -> None:
    values: Any = adapter_values()
    [rule] = values["rules"]["external"]
    promql_parser.parse(rule["seriesQuery"])
    pattern = re.search('__name__=~"([^"]*)"', rule["seriesQuery"])
    assert pattern is not None
    assert all(re.fullmatch(pattern[1], one["record"]) for one in rules())
    assert not re.fullmatch(pattern[1], "triptych_gateway_overhead_seconds"), "one of the pods' own"
    assert rule["resources"]["overrides"] == {"namespace": {"resource": "namespace"}}


def test_pods_are_scraped_where_they_listen_and_known_by_resource_and_tier() -> None:
    made: Any = deployment(service(), Tier.DECODE, PLATFORM, CONFIG)
    pod = made["spec"]["template"]
    spec: Any = pod_monitor_spec()
    [endpoint] = spec["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    for relabeling in endpoint["relabelings"]:
        [source] = relabeling["sourceLabels"]
        assert source in {
            f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9]', '_', label)}"
            for label in pod["metadata"]["labels"]
        }
    targets = [one["targetLabel"] for one in endpoint["relabelings"]]
    assert targets == [naming.PROMETHEUS_SERVICE, naming.PROMETHEUS_TIER]
