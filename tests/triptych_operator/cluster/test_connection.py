import json
from pathlib import Path

import pytest
from triptych_contract.errors import InvalidRequest
from triptych_operator.cluster import connection


def kubeconfig(folder: Path, server: str = "https://10.0.0.1:6443", **user: str) -> Path:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


async def test_a_kubeconfig_says_where_the_server_is(tmp_path: Path) -> None:
    found = await connection.load(kubeconfig(tmp_path))
    assert found.host == "https://10.0.0.1:6443"
    assert found.connection_pool_maxsize == connection.CONNECTIONS


async def test_kopf_gets_the_same_credentials(tmp_path: Path) -> None:
    made = await connection.for_kopf(kubeconfig(tmp_path, token="secret"))
    assert (made.server, made.scheme, made.token) == (
        "https://10.0.0.1:6443", "Bearer", "secret"
    )  # fmt: skip
    assert made.insecure is True


async def test_kopf_needs_no_token_where_there_is_none(tmp_path: Path) -> None:
    made = await connection.for_kopf(kubeconfig(tmp_path))
    assert (made.scheme, made.token) == (None, None)


async def test_no_cluster_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="set KUBECONFIG to a kubeconfig file"):
        await connection.load(tmp_path / "absent")


async def test_a_file_that_is_no_kubeconfig_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    with pytest.raises(InvalidRequest, match="no cluster to connect to"):
        await connection.load(path)


async def test_the_environments_proxy_is_used_but_where_it_says_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,10.0.0.2")
    assert (await connection.load(kubeconfig(tmp_path))).proxy == "http://proxy:3128"
    direct = kubeconfig(tmp_path, server="https://10.0.0.2:6443")
    assert (await connection.load(direct)).proxy is None


async def test_calls_read_no_environment_of_their_own(tmp_path: Path) -> None:
    configuration = await connection.load(kubeconfig(tmp_path))
    client = connection.client(configuration)
    session = client.rest_client._create_pool_manager()
    assert session.trust_env is False
    await session.close()
