import json
from pathlib import Path

from bench.operator.calls import CallLog

EVENT = {
    "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
    "stageTimestamp": "2026-01-01T00:00:00.250000Z",
    "user": {"username": "bench:ours"},
    "verb": "patch",
    "objectRef": {"resource": "deployments", "namespace": "ours", "name": "a-decode"},
    "responseStatus": {"code": 200},
}


def test_calls_are_read_once_and_only_when_written_to_their_end(tmp_path: Path) -> None:
    log = CallLog(tmp_path, ["bench:ours"])
    assert list(log.read()) == []
    line = json.dumps(EVENT)
    path = tmp_path / "calls.log"
    path.write_text(f"{line}\n{line[:40]}")
    (call,) = log.read()
    assert (call.resource, call.name, call.writes, call.succeeded) == (
        "deployments", "a-decode", True, True,
    )  # fmt: skip
    assert call.at - call.received == 0.25
    path.write_text(f"{line}\n{line}\n")
    assert len(list(log.read())) == 1


def test_the_policy_logs_the_users_of_the_benchmark_alone(tmp_path: Path) -> None:
    flags = CallLog(tmp_path, ["bench:ours"]).flags()
    policy = json.loads(Path(str(flags["audit-policy-file"])).read_text())
    assert policy["rules"][-1] == {"level": "None"}
    assert policy["rules"][1]["users"] == ["bench:ours"]
