"""The arguments of ``triptych operator``, and what the process makes of them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from triptych_contract.errors import InvalidRequest
from triptych_operator.cli.operator import add_to, settings_of
from triptych_operator.controller.settings import Election, OperatorSettings
from triptych_operator.desired.platform import Metrics
from triptych_operator.metrics_api.front import Front

SERVICE = "--metrics-service=triptych-system/triptych-operator-api"


def settings(*arguments: str, namespace_file: Path = Path("/none")) -> OperatorSettings:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    return settings_of(parser.parse_args(["operator", *arguments]), namespace_file)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("10.1.2.3:10250", "10.1.2.3", 10250), ("fd00::2:10250", "fd00::2", 10250)],
)
def test_a_service_and_an_address_are_what_embedded_takes(
    address: str, host: str, port: int
) -> None:
    for metrics in ((), ("--metrics=embedded",)):
        found = settings(SERVICE, f"--metrics-address={address}", *metrics)
        assert found.front == Front("triptych-system", "triptych-operator-api", host, port)
        assert found.platform.metrics is Metrics.EMBEDDED


def test_a_pod_lets_its_own_namespace_reach_stages_wherever_its_lease_is(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("triptych-system")
    for arguments in ([], ["--no-election"], ["--election-namespace=leases"]):
        found = settings(*arguments, namespace_file=file)
        assert found.platform.operator_namespace == "triptych-system"


def test_a_process_that_is_no_pod_lets_none_reach_stages() -> None:
    found = settings()
    assert found.platform.operator_namespace is None
    assert found.election == Election("default")


@pytest.mark.parametrize(
    ("arguments", "pod", "installation"),
    [
        ((), True, "triptych-system"),
        (("--election-namespace=leases",), True, "leases"),
        (("--no-election",), True, "triptych-system"),
        (("--election-namespace=leases",), False, "leases"),
        (("--no-election",), False, None),
    ],
)
def test_installations_go_by_the_namespace_of_their_lease_or_else_by_their_own(
    arguments: tuple[str, ...], pod: bool, installation: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "namespace"
    if pod:
        file.write_text("triptych-system")
    assert settings(*arguments, namespace_file=file).platform.installation == installation


def test_outside_of_a_cluster_nothing_is_served() -> None:
    found = settings()
    assert (found.front, found.platform.metrics) == (None, Metrics.NONE)
    assert found.read_signals


@pytest.mark.parametrize("metrics", [Metrics.PROMETHEUS, Metrics.KEDA, Metrics.NONE])
def test_where_others_serve_the_operator_does_not(metrics: Metrics) -> None:
    found = settings(f"--metrics={metrics}", SERVICE, "--metrics-address=10.1.2.3:10250")
    assert (found.front, found.platform.metrics) == (None, metrics)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--metrics=embedded"],
        ["--metrics=embedded", SERVICE],
        ["--metrics=embedded", "--metrics-address=10.1.2.3:10250"],
        [SERVICE],
    ],
)
def test_half_of_what_embedded_takes_is_refused(arguments: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="--metrics-service and --metrics-address"):
        settings(*arguments)


def test_pods_that_cannot_be_reached_need_not_be_asked() -> None:
    assert not settings("--no-signals").read_signals


@pytest.mark.parametrize(
    "argument", ["--metrics=other", "--metrics-service=name", "--metrics-address=10250"]
)
def test_what_is_none_is_refused_with_usage(argument: str) -> None:
    with pytest.raises(SystemExit):
        settings(argument)
