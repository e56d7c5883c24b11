"""The health check that docs/gitops.md gives to Argo CD, run as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime
from triptych_operator.api.status import Condition, ConditionType, ServiceStatus

PAGE = Path(__file__).resolve().parents[2] / "docs/gitops.md"
KEY = "resource.customizations.health.triptych.dev_MultimodalService"

Health = tuple[str, str]  # as Argo CD shows it: the status, and a message
Check = Callable[[dict[str, Any]], Health]


@pytest.fixture(scope="module")
def check() -> Check:
    documents = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (script,) = _scripts(documents)
    # As Argo CD runs it: Lua 5.1, with the object as the global obj.
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    run = lua.execute(f"return function(given) obj = given\n{script}\nend")

    def health(resource: dict[str, Any]) -> Health:
        answer = run(lua.table_from(resource, recursive=True))
        return answer["status"], answer["message"]

    return health


def _scripts(documents: list[str]) -> list[str]:
    parsed = [one for text in documents for one in yaml.safe_load_all(text)]
    return [one["data"][KEY] for one in parsed if one["kind"] == "ConfigMap"]


def resource(generation: int, status: ServiceStatus | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"metadata": {"name": "shapes", "generation": generation}}
    if status is not None:
        made["status"] = status.model_dump(mode="json", by_alias=True)
    return made


def status(generation: int, **conditions: str) -> ServiceStatus:
    """A status with those conditions, each with its own message."""
    return ServiceStatus(
        observed_generation=generation,
        conditions=tuple(
            Condition(
                type=ConditionType(name),
                status=value,
                reason="Tested",
                message=f"{name} is {value}",
                last_transition_time="2030-01-01T00:00:00Z",
                observed_generation=generation,
            )
            for name, value in conditions.items()
        ),
    )


CASES = {
    "a resource that no operator has seen": (
        resource(1),
        ("Progressing", "the operator has not seen this change yet"),
    ),
    "a change that no operator has seen": (
        resource(2, status(1, Ready="True")),
        ("Progressing", "the operator has not seen this change yet"),
    ),
    "pods that come up": (
        resource(1, status(1, Ready="False", Reconciling="True")),
        ("Progressing", "Reconciling is True"),
    ),
    "a trouble that somebody must look at": (
        resource(3, status(3, Ready="False", Stalled="True", EncoderReady="False")),
        ("Degraded", "Stalled is True"),
    ),
    "all pods ready": (
        resource(3, status(3, Ready="True", EncoderReady="True")),
        ("Healthy", "Ready is True"),
    ),
    "not ready, for a reason that is not known": (
        resource(1, status(1, Ready="False")),
        ("Progressing", "Ready is False"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_argo_cd_shows_what_the_status_says(check: Check, case: str) -> None:
    given, expected = CASES[case]
    assert check(given) == expected
