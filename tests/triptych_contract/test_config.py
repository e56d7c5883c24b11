"""A configuration is read whole or refused by the name of the field."""

from __future__ import annotations

from pathlib import Path

import pytest
from triptych_contract.config import Endpoints, GatewayConfig, Model, WorkerConfig
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Topology


def written(folder: Path, text: str) -> Path:
    path = folder / "config.json"
    path.write_text(text)
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    config = GatewayConfig(
        model=Model(source="builtin://shapes", served_name="shapes"),
        topology=Topology.FULL_SPLIT,
        encoder=Endpoints(addresses=("10.0.0.1:50051",)),
    )
    path = written(tmp_path, config.model_dump_json())
    assert GatewayConfig.load(path) == config


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"model": {"source": "builtin://shapes"}, "drain_second": 3}', "drain_second"),
        ('{"model": {"source": "builtin://shapes", "dtype": "float8"}}', r"model\.dtype"),
        ('{"model": {"source": "x"}, "language": {"kv_tokens": 0}}', r"language\.kv_tokens"),
        ('{"model": {"source": "x"}, "pace_seconds": -0.05}', "pace_seconds"),
        ('{"model": {"source": "x"}, "pace_seconds": 50}', "pace_seconds"),
        ("{}", "model: Field required"),
        ("{", "top level: Invalid JSON"),
    ],
)
def test_a_wrong_configuration_names_the_field(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        WorkerConfig.load(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read .*absent\.json"):
        WorkerConfig.load(tmp_path / "absent.json")
