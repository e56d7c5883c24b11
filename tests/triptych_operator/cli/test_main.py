import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mms_builders import manifest, service
from triptych_operator.cli import main
from triptych_operator.cli.up import program
from triptych_operator.local.plan import plan_locally

CONFIG = Path("/c.json")


def test_the_command_tells_its_version() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "triptych_operator", "--version"], capture_output=True, check=True
    )
    assert run.stdout == b"triptych 0.1.0\n"


def test_the_command_never_loads_torch() -> None:
    code = "import sys, triptych_operator.cli; print({'torch', 'transformers'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stdout == b"set()\n"


def test_an_operator_that_asks_no_pods_loads_neither_grpc_nor_cryptography() -> None:
    """They take 18 MiB."""
    code = (
        "import sys, triptych_operator.controller.process; "
        "print({'grpc', 'cryptography'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert run.stdout == b"set()\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["down"], ["up"], ["up", "-f", "x", "--port", "70000"], ["ask"],
        ["up", "-f", "x", "--threads", "0"], ["ask", "--max-tokens", "many", "Hello"],
    ],
)  # fmt: skip
def test_wrong_usage_is_told_with_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: triptych" in capsys.readouterr().err


def test_a_wrong_number_is_told_with_what_would_be_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["up", "-f", "x", "--port", "70000"])
    assert "a port is a number from 0 to 65535, not '70000'" in capsys.readouterr().err


def test_up_refuses_a_wrong_manifest_before_it_starts_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(manifest(topology="Split")))
    assert main(["up", "-f", str(path)]) == 1
    assert f"triptych: {path}: spec.topology: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model__source": "file:///no/such"}, "spec.model: /no/such is not a folder here"),
        ({"model__source": "builtin://none"}, "spec.model: no built-in model is named 'none'"),
        ({"model__revision": "9"}, "spec.model: built-in model 'shapes' has no revision '9'"),
        (
            {"model__encoder": {"source": "builtin://shapes", "revision": "9"}},
            "spec.model.encoder: built-in model 'shapes' has no encoder revision '9'",
        ),
    ],
)
def test_up_says_at_once_that_there_is_no_such_model(
    changes: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(manifest(**changes)))
    assert main(["up", "-f", str(path)]) == 1
    assert f"triptych: {said}" in capsys.readouterr().err


def test_up_says_at_once_that_its_port_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(manifest()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["up", "-f", str(path), "--port", port]) == 1
    assert f"port {port}: Address already in use; choose another" in capsys.readouterr().err


def test_each_process_is_called_with_its_tier_and_configuration() -> None:
    given = service(engine__args=["--log", "debug"])
    plan = plan_locally(given, cores=1)
    worker, gateway = plan.workers[0], plan.gateway
    assert program(given, worker, CONFIG) == [
        sys.executable, "-m", "triptych_worker", "encoder", "--config", "/c.json", "--log", "debug",
    ]  # fmt: skip
    assert program(given, gateway, CONFIG)[1:] == ["-m", "triptych_gateway", "--config", "/c.json"]
