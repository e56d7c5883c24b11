import pytest
from triptych_operator.local.ready import Ready, port_of


def test_a_ready_line_holds_the_addresses() -> None:
    line = '{"tier": "encoder", "grpc": "127.0.0.1:5", "metrics": "127.0.0.1:6"}\n'
    assert Ready.parse(line) == Ready(grpc="127.0.0.1:5", metrics="127.0.0.1:6")


@pytest.mark.parametrize(
    "line", ["", "loading", "{", "[]", "1", '"grpc"', "{}", '{"level": "info"}', '{"grpc": ""}']
)
def test_other_output_is_no_ready_line(line: str) -> None:
    assert Ready.parse(line) is None


def test_the_port_of_no_address_is_any() -> None:
    assert (port_of("127.0.0.1:80"), port_of("[::1]:81"), port_of("")) == (80, 81, 0)
