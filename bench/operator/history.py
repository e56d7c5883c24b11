"""What one operator did for its resources, told from the calls to the API server. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from bench.operator import shape
from bench.operator.calls import Call
from bench.operator.shape import Child

RESOURCES = "multimodalservices"


@dataclass(frozen=True, slots=True)
class Resource:
    """When one resource was made, when it was changed, and when each child was written."""

    created: float
    missing: set[Child]
    changes: list[float] = field(default_factory=list)
    writes: dict[Child, list[float]] = field(default_factory=dict)

    def note(self, child: Child, time: float) -> None:
        """Notes that ``child`` was written."""
        self.missing.discard(child)
        self.writes.setdefault(child, []).append(time)

    def first_after(self, child: Child, time: float) -> float:
        """When ``child`` was first written after ``time``; infinity when it was not."""
        later = [written for written in self.writes.get(child, ()) if written > time]
        return min(later, default=math.inf)

    def complete_at(self) -> float:
        """When its last child was there."""
        return max(times[0] for times in self.writes.values())


class History:
    """One operator's namespace: ``author`` makes the resources there, ``operator`` the children."""

    def __init__(self, namespace: str, author: str, operator: str) -> None:
        self.namespace = namespace
        self.resources: dict[str, Resource] = {}
        self.calls: list[Call] = []  # of the operator
        self._author = author
        self._operator = operator
        self._owners: dict[Child, str] = {}
        # Written already, by resources whose own creation is not in the log yet: an operator can be
        # quicker than the answer to whoever made the resource.
        self._early: dict[Child, list[float]] = {}

    def take(self, call: Call) -> None:
        """Notes one call, whosoever made it."""
        if call.user == self._operator:
            self.calls.append(call)
            if call.succeeded and call.writes and call.namespace == self.namespace:
                self._child_written(call)
        elif call.user == self._author and call.namespace == self.namespace and call.succeeded:
            self._resource_written(call)

    def incomplete(self) -> int:
        """How many resources lack a child."""
        return sum(bool(resource.missing) for resource in self.resources.values())

    def changed(self) -> int:
        """How many resources were changed."""
        return sum(bool(resource.changes) for resource in self.resources.values())

    def unpatched(self) -> int:
        """How many resources were changed without their Deployment having followed."""
        return sum(
            bool(resource.changes)
            and resource.first_after(shape.deployment(name), resource.changes[-1]) == math.inf
            for name, resource in self.resources.items()
        )

    def creations(self, names: Iterable[str]) -> list[float]:
        """Seconds from each creation until all children were applied."""
        chosen = [self.resources[name] for name in names]
        return [resource.complete_at() - resource.created for resource in chosen]

    def rate(self, names: Iterable[str]) -> float:
        """Resources per second of a burst: from the first creation to the last child."""
        chosen = [self.resources[name] for name in names]
        began = min(resource.created for resource in chosen)
        return len(chosen) / (max(resource.complete_at() for resource in chosen) - began)

    def patches(self) -> list[float]:
        """Seconds from each change until the Deployment was patched."""
        return self._answers(lambda name: (shape.deployment(name),))

    def applications(self) -> list[float]:
        """Seconds from each change until the last child that it makes different was patched."""
        return self._answers(shape.changed_children)

    def writes_per_change(self) -> float:
        """Writes to children after a resource's change, for each child that really changes."""
        written = due = 0
        for name, resource in self.resources.items():
            if resource.changes:
                due += len(shape.changed_children(name)) * len(resource.changes)
                written += sum(
                    time > resource.changes[0]
                    for times in resource.writes.values()
                    for time in times
                )
        return written / due

    def between(self, began: float, ended: float) -> list[Call]:
        """The operator's calls of a stretch of time."""
        return [call for call in self.calls if began <= call.at < ended]

    def last_write(self) -> float:
        """When the operator last wrote anything; 0 when never."""
        return next((call.at for call in reversed(self.calls) if call.writes), 0.0)

    def _resource_written(self, call: Call) -> None:
        if call.resource != RESOURCES:
            return
        if call.verb == "create":
            expected = shape.children(call.name)
            resource = Resource(call.received, set(expected))
            self.resources[call.name] = resource
            self._owners |= dict.fromkeys(expected, call.name)
            for child in expected:
                for time in self._early.pop(child, ()):
                    resource.note(child, time)
        elif call.verb == "patch":
            self.resources[call.name].changes.append(call.received)

    def _child_written(self, call: Call) -> None:
        if call.subresource or call.resource == RESOURCES:
            return
        child = Child(call.resource, call.name)
        owner = self._owners.get(child)
        if owner is None:
            self._early.setdefault(child, []).append(call.at)
        else:
            self.resources[owner].note(child, call.at)

    def _answers(self, due: Callable[[str], Collection[Child]]) -> list[float]:
        """Seconds from each change until the last of the children that are ``due`` by it."""
        found = []
        for name, resource in self.resources.items():
            for change in resource.changes:
                times = [resource.first_after(child, change) for child in due(name)]
                found.append(max(times) - change)
        return found
