"""Who the front proxy is, by what the API server says."""

from __future__ import annotations

from typing import Any

import pytest
from cluster.certificates import Authority
from triptych_contract.errors import Unavailable
from triptych_operator.metrics_api.front_proxy import FrontProxy, front_proxy_of

NAMED = {
    "subject": ((("organizationName", "front-proxy-client"),), (("commonName", "aggregator"),))
}


def config(**entries: str) -> dict[str, Any]:
    return {"data": {name.replace("_", "-"): value for name, value in entries.items()}}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Authority(tmp_path_factory.mktemp("pki"), "front-proxy-ca").certificate.read_text()


def test_the_config_map_names_it(authority: str) -> None:
    found = front_proxy_of(
        config(
            requestheader_client_ca_file=authority,
            requestheader_allowed_names='["front-proxy-client","aggregator"]',
        )
    )
    assert found == FrontProxy(authority, frozenset({"front-proxy-client", "aggregator"}))


@pytest.mark.parametrize("names", ["", "[]"])
def test_without_names_anyone_of_the_authority_is_allowed(authority: str, names: str) -> None:
    found = front_proxy_of(
        config(requestheader_client_ca_file=authority, requestheader_allowed_names=names)
    )
    assert found.allows(NAMED)
    assert not found.allows({})
    assert not found.allows(None)


def test_with_names_the_common_name_must_be_one_of_them() -> None:
    assert FrontProxy("", frozenset({"aggregator"})).allows(NAMED)
    # An organization of that name is not it.
    assert not FrontProxy("", frozenset({"front-proxy-client"})).allows(NAMED)
    assert not FrontProxy("", frozenset({"aggregator"})).allows({"subject": ()})


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"requestheader_client_ca_file": ""},
        {"requestheader_client_ca_file": "-----BEGIN NONSENSE-----"},
        {"client_ca_file": "the authority of users, who must not call"},
    ],
)
def test_without_an_authority_nobody_may_call(entries: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="--requestheader-client-ca-file"):
        front_proxy_of(config(**entries))


def test_without_a_config_map_nobody_may_call() -> None:
    with pytest.raises(Unavailable, match="kube-system/extension-apiserver-authentication"):
        front_proxy_of(None)


def test_names_that_cannot_be_read_are_not_taken_for_anyone(authority: str) -> None:
    with pytest.raises(Unavailable):
        front_proxy_of(
            config(requestheader_client_ca_file=authority, requestheader_allowed_names="aggregator")
        )
