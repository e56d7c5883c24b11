"""Which API servers find an EndpointSlice behind an APIService."""

from __future__ import annotations

import pytest
from triptych_operator.metrics_api.server_versions import too_old


@pytest.mark.parametrize("version", ["v1.32.0", "v1.33.13", "v1.33.5-gke.1", "v1.9.1"])
def test_up_to_1_33_it_says_what_to_do(version: str) -> None:
    told = too_old({"major": "1", "gitVersion": version})
    assert told.startswith(f"Kubernetes {version} cannot call the operator")
    assert "autoscaling.provider" in told


@pytest.mark.parametrize("version", ["v1.34.0", "v1.34.1+k3s1", "v1.36.3", "v2.0.0", "", "other"])
def test_newer_ones_and_those_that_say_nothing_are_taken(version: str) -> None:
    assert too_old({"gitVersion": version}) == ""
    assert too_old({}) == ""
