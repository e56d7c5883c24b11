from typing import Any

import pytest
from triptych_operator.observed.troubles import (
    MESSAGE_LIMIT,
    Reason,
    Trouble,
    trouble_of_autoscaler,
    trouble_of_pod,
)


def waiting(reason: str, message: str = "", **container: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    given = {"name": "triptych", "image": "worker:7", "state": state, **container}
    return {"status": {"containerStatuses": [given]}}


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull", "InvalidImageName"])
def test_an_image_that_cannot_be_pulled_is_named(reason: str) -> None:
    assert trouble_of_pod(waiting(reason, "not found")) == Trouble(
        Reason.IMAGE_PULL, "image worker:7: not found"
    )


def test_a_crash_is_told_with_its_status_and_the_last_line_of_its_log() -> None:
    ended = {"reason": "Error", "exitCode": 2, "message": "loading\nweights.bin is missing\n\n"}
    body = waiting("CrashLoopBackOff", lastState={"terminated": ended})
    assert trouble_of_pod(body) == Trouble(
        Reason.CRASH_LOOP,
        "container triptych keeps ending (Error, exit status 2): weights.bin is missing",
    )


def test_a_crash_without_a_log_is_told_too() -> None:
    body = waiting("CrashLoopBackOff", lastState={"terminated": {"reason": "OOMKilled"}})
    assert trouble_of_pod(body) == Trouble(
        Reason.CRASH_LOOP, "container triptych keeps ending (OOMKilled, exit status unknown)"
    )


def test_a_container_that_cannot_be_configured_says_what_is_missing() -> None:
    body = waiting("CreateContainerConfigError", 'secret "hub" not found')
    assert trouble_of_pod(body) == Trouble(
        Reason.CONTAINER_CONFIG, 'container triptych: secret "hub" not found'
    )


def test_a_pod_that_fits_nowhere_says_why() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    trouble = trouble_of_pod({"status": {"conditions": [condition]}})
    assert trouble == Trouble(Reason.UNSCHEDULABLE, condition["message"])
    assert not trouble.stalls


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"status": {}},
        waiting("ContainerCreating"),
        {"status": {"containerStatuses": [{"name": "triptych", "state": {"running": {}}}]}},
        {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}},
    ],
)
def test_a_pod_on_its_way_has_no_trouble(body: dict[str, Any]) -> None:
    assert trouble_of_pod(body) is None


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            {
                "type": "ScalingActive",
                "status": "False",
                "reason": "FailedGetExternalMetric",
                "message": "no metrics",
            },
            "no metrics",
        ),
        ({"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled"}, None),
        ({"type": "ScalingActive", "status": "True"}, None),
        ({"type": "ScalingLimited", "status": "False"}, None),
    ],
)
def test_an_autoscaler_that_cannot_read_is_told(
    condition: dict[str, str], message: str | None
) -> None:
    trouble = trouble_of_autoscaler({"status": {"conditions": [condition]}})
    assert (trouble and trouble.message) == message


def test_a_message_without_end_is_cut() -> None:
    trouble = trouble_of_pod(waiting("ImagePullBackOff", "x" * 10_000))
    assert trouble is not None
    assert len(trouble.message) == MESSAGE_LIMIT
