from __future__ import annotations

import json
from pathlib import Path

import pytest
from triptych_worker.cli import configured, main, parser


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "worker.json"
    listen = {"grpc_port": 7, "metrics_port": 8, "host": "127.0.0.1"}
    path.write_text(json.dumps({"model": {"source": "file:///m"}, "listen": listen}))
    return path


def test_the_environment_names_the_file_when_no_flag_does(file: Path) -> None:
    config = configured(parser().parse_args(["decode"]), {"TRIPTYCH_CONFIG": str(file)})
    assert config.listen.grpc_port == 7


def test_flags_replace_addresses_and_nothing_else(file: Path) -> None:
    flags = ["--grpc-port", "0", "--host", "::1", "--advertise", "pod"]
    config = configured(parser().parse_args(["decode", "--config", str(file), *flags]), {})
    assert (config.listen.grpc_port, config.listen.metrics_port) == (0, 8)
    assert (config.listen.host, config.listen.advertise) == ("::1", "pod")
    assert config.model.source == "file:///m"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["decode"], "pass --config FILE or set TRIPTYCH_CONFIG"),
        (["decode", "--config", "/no/such/file"], "/no/such/file"),
    ],
)
def test_without_a_configuration_it_ends_with_status_2_and_says_what_to_do(
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRIPTYCH_CONFIG", raising=False)
    assert main(arguments) == 2
    written = capsys.readouterr()
    assert says in written.err
    assert written.err.count("\n") == 1
    assert not written.out


@pytest.mark.parametrize("arguments", [[], ["gateway"], ["decode", "--grpc-port", "70000"]])
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
