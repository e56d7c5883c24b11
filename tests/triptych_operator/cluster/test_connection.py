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
