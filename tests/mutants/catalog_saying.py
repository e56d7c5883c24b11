"""Faults of what the operator says of a resource, and of the order in which it changes one."""

from __future__ import annotations

from typing import Final

from mutants.places import (
    ADMISSION,
    ANNOUNCEMENTS,
    COMPLETENESS,
    CONDITIONS,
    EVENTS,
    RECONCILE,
    SNAPSHOT,
    STATUSES,
    STEP,
    STORE,
    TROUBLES,
    Mutant,
)

SAYING: Final = (
    Mutant(
        "the status repeats the spec instead of what is observed",
        CONDITIONS,
        "        ready=sum(pod.ready for pod in updated),\n",
        "        ready=snapshot.desired,\n",
    ),
    Mutant(
        "ready counts pods of older revisions",
        CONDITIONS,
        "        ready=sum(pod.ready for pod in updated),\n",
        "        ready=sum(pod.ready for pod in staying),\n",
    ),
    Mutant(
        "ready although old pods make up the number",
        COMPLETENESS,
        "        and all(pod.ready and pod.revision == revision for pod in staying)\n",
        "        and all(pod.ready for pod in staying)\n",
    ),
    Mutant(
        "ready before the change is applied",
        COMPLETENESS,
        "        tier.revision == revision\n        and tier.rolled_out",
        "        tier.rolled_out",
    ),
    Mutant(
        "pods of a deleted namesake make it ready",
        COMPLETENESS,
        "        and tier.rolled_out\n",
        "",
    ),
    Mutant(
        "what a Deployment said of its former version counts for this one",
        STORE,
        "    return seen and counts == {wanted}\n",
        "    return counts == {wanted}\n",
    ),
    Mutant(
        "pods that go count as there",
        SNAPSHOT,
        'terminating="deletionTimestamp" in metadata',
        "terminating=False",
    ),
    Mutant(
        "observedGeneration says more than was done",
        CONDITIONS,
        "    generation = service.metadata.generation\n",
        "    generation = service.metadata.generation + 1\n",
    ),
    Mutant(
        "a process that knows less sets observedGeneration back",
        RECONCILE,
        " or status.observed_generation < previous.observed_generation:",
        ":",
    ),
    Mutant(
        "an unchanged status is written at every look",
        RECONCILE,
        "if status == previous or status",
        "if status",
    ),
    Mutant(
        "times move at every look",
        CONDITIONS,
        "            if (one.type, one.status) == (verdict.type, verdict.status)\n",
        "            if (one.type, one.status) == (verdict.type, verdict.reason)\n",
    ),
    Mutant(
        "a time stays when its condition flips",
        CONDITIONS,
        "            if (one.type, one.status) == (verdict.type, verdict.status)\n",
        "            if one.type == verdict.type\n",
    ),
    Mutant(
        "a refusal is not told",
        RECONCILE,
        "snapshot_of(self._store.children(key), trouble)",
        "snapshot_of(self._store.children(key))",
    ),
    Mutant(
        "a refusal is told but not tried again",
        RECONCILE,
        "        if refused:\n            raise refused\n",
        "",
    ),
    Mutant(
        "a refusal that passes stalls",
        RECONCILE,
        "lasting=not refused.passes",
        "lasting=True",
    ),
    Mutant(
        "the status of a namesake is overwritten",
        STATUSES,
        '    metadata["resourceVersion"] = str(version)\n',
        "",
    ),
    Mutant(
        "what is being deleted is brought about again",
        RECONCILE,
        ' or "deletionTimestamp" in body["metadata"]',
        "",
    ),
    Mutant(
        "an Event at every look while it stalls",
        ANNOUNCEMENTS,
        "(stalled_before is None or stalled_before.reason != stalled.reason)",
        "stalled.reason",
    ),
    Mutant(
        "no Event when it becomes ready",
        ANNOUNCEMENTS,
        "if _is_true(ready) and not _is_true(ready_before) and ready is not None:",
        "if _is_true(ready) and _is_true(ready_before) and ready is not None:",
    ),
    Mutant(
        "an Event that is refused fails the look",
        EVENTS,
        "    except Refusal as refused:\n",
        "    except ZeroDivisionError as refused:\n",
    ),
    Mutant(
        "a crash is told without the last words",
        TROUBLES,
        "lines[-1].strip()",
        "lines[0].strip()",
    ),
    Mutant(
        "an image that cannot be pulled is not named",
        TROUBLES,
        "f\"image {container.get('image', '')}: ",
        'f"image: ',
    ),
)

ROLLING: Final = (
    Mutant(
        "the gateway is switched before the new tiers run",
        STEP,
        "        if waiting:\n",
        "        if not waiting:\n",
    ),
    Mutant(
        "old tiers go while the gateway still uses them",
        STEP,
        "    if old and not can_take_over(gateway, revisions[Tier.GATEWAY], surge_percent):\n",
        "    if not topology:\n",
    ),
    Mutant(
        "new pods pass the gate one by one while old ones serve",
        ADMISSION,
        "if pod.revision == revision and (complete or not _has_old(tier, revision)):",
        "if pod.revision == revision:",
    ),
    Mutant(
        "old gateways that still answer keep no worker alive",
        COMPLETENESS,
        "return not old and sum(pod.ready for pod in new) >= tier.desired",
        "return sum(pod.ready for pod in new) >= tier.desired",
    ),
)
