"""Causes that a person can act on, read from pods and autoscalers. Pure.

The reasons are the words of Kubernetes where it has one, so that they can be searched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

MESSAGE_LIMIT: Final = 1024  # characters of one cause in a status


class Reason(StrEnum):
    """Why a tier or the resource is as it is; the ``reason`` of conditions."""

    # All is well, or on its way.
    PODS_READY = "PodsReady"
    RESTING = "Resting"
    ALL_TIERS_READY = "AllTiersReady"
    ROLLING_OUT = "RollingOut"
    TIERS_NOT_READY = "TiersNotReady"
    # Waits for something that may come by itself.
    UNSCHEDULABLE = "Unschedulable"
    # Stays until somebody acts.
    IMAGE_PULL = "ImagePullBackOff"
    CRASH_LOOP = "CrashLoopBackOff"
    CONTAINER_CONFIG = "CreateContainerConfigError"
    INVALID_SPEC = "InvalidSpec"
    DEFINITION_OLDER = "DefinitionOlderThanOperator"
    DEFINITION_OTHER = "DefinitionNewerThanOperator"
    # Does not keep pods from being ready.
    SCALING_BLIND = "AutoscalerCannotRead"


STALLING: Final = frozenset(
    {Reason.IMAGE_PULL, Reason.CRASH_LOOP, Reason.CONTAINER_CONFIG, Reason.INVALID_SPEC}
)

_WAITING: Final = {
    "ImagePullBackOff": Reason.IMAGE_PULL,
    "ErrImagePull": Reason.IMAGE_PULL,
    "InvalidImageName": Reason.IMAGE_PULL,
    "CrashLoopBackOff": Reason.CRASH_LOOP,
    "CreateContainerConfigError": Reason.CONTAINER_CONFIG,
    "CreateContainerError": Reason.CONTAINER_CONFIG,
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One cause; the message names what it is about.

    ``reason`` is a ``Reason``, or the API server's own word when it refused something; ``lasting``
    says that it would refuse the same again.
    """

    reason: str
    message: str
    lasting: bool = False

    @property
    def stalls(self) -> bool:
        """Whether it stays until somebody acts."""
        return self.lasting or self.reason in STALLING


def trouble_of_pod(body: Mapping[str, Any]) -> Trouble | None:
    """What keeps a pod from being ready, if it is something that somebody can act on."""
    status = body.get("status", {})
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        reason = _WAITING.get(waiting.get("reason", ""))
        if reason is not None:
            return Trouble(reason, _short(_about_container(reason, container, waiting)))
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return Trouble(Reason.UNSCHEDULABLE, _short(condition.get("message", "no node fits")))
    return None


def trouble_of_autoscaler(body: Mapping[str, Any]) -> Trouble | None:
    """What keeps an autoscaler from reading its signals."""
    for condition in body.get("status", {}).get("conditions", ()):
        failing = condition.get("type") == "ScalingActive" and condition.get("status") == "False"
        # Switched off on purpose, by zero replicas.
        if failing and condition.get("reason") != "ScalingDisabled":
            return Trouble(Reason.SCALING_BLIND, _short(condition.get("message", "")))
    return None


def _about_container(
    reason: Reason, container: Mapping[str, Any], waiting: Mapping[str, Any]
) -> str:
    if reason is Reason.IMAGE_PULL:
        return f"image {container.get('image', '')}: {waiting.get('message', 'cannot be pulled')}"
    if reason is Reason.CRASH_LOOP:
        return _about_crash(container)
    return f"container {container.get('name', '')}: {waiting.get('message', '')}"


def _about_crash(container: Mapping[str, Any]) -> str:
    """The exit status and the last line of the log, which the pod keeps for us."""
    ended = container.get("lastState", {}).get("terminated", {})
    lines = [line for line in str(ended.get("message", "")).splitlines() if line.strip()]
    why = f"{ended.get('reason', 'Error')}, exit status {ended.get('exitCode', 'unknown')}"
    last = f": {lines[-1].strip()}" if lines else ""
    return f"container {container.get('name', '')} keeps ending ({why}){last}"


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 1]}…"
