"""From a snapshot to the resource's status, by the rules of kstatus. Pure.

Ready is true when every pod of every tier has the current revision and is ready. Reconciling and
Stalled are there only while they are true, and never both. A condition's time moves only when its
status does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from triptych_contract.names import Tier

from triptych_operator.api.service import MultimodalService
from triptych_operator.api.status import Condition, ConditionType, ServiceStatus, TierStatus
from triptych_operator.desired import naming
from triptych_operator.observed.snapshot import Snapshot, TierSnapshot
from triptych_operator.observed.troubles import MESSAGE_LIMIT, Reason, Trouble
from triptych_operator.rollout.completeness import is_complete

_WHOLE_LIMIT: Final = 4 * MESSAGE_LIMIT  # characters of a condition's message
_TIER_CONDITIONS: Final = {
    Tier.ENCODER: ConditionType.ENCODER_READY,
    Tier.PREFILL: ConditionType.PREFILL_READY,
    Tier.DECODE: ConditionType.DECODE_READY,
    Tier.FUSED: ConditionType.FUSED_READY,
    Tier.GATEWAY: ConditionType.GATEWAY_READY,
}


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A condition without the time at which it became so."""

    type: ConditionType
    status: Literal["True", "False"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _TierView:
    """One tier as it is counted."""

    snapshot: TierSnapshot
    desired: int  # what the Deployment says, or what the resource begins with before there is one
    current: bool  # the Deployment has the revision that the resource asks for
    updated: int
    ready: int
    outdated: int
    complete: bool  # every pod has the current revision and is ready

    @property
    def trouble(self) -> Trouble | None:
        """The first cause, one that needs somebody before one that may pass. Pods that others are
        about to replace have none that matters."""
        staying = (pod for pod in self.snapshot.pods if not pod.terminating)
        current = (pod for pod in staying if pod.revision == self.snapshot.revision)
        found = [pod.trouble for pod in current if pod.trouble]
        return min(found, key=lambda trouble: not trouble.stalls, default=None)


def status_of(
    service: MultimodalService,
    revisions: dict[Tier, str],
    snapshot: Snapshot,
    previous: ServiceStatus,
    now: str,
) -> ServiceStatus:
    """The status of ``service``.

    Args:
        revisions: the revision that each tier of the topology should have.
        previous: the status that stands, whose times are kept where nothing flipped.
        now: the time of flips, RFC 3339.
    """
    views = [
        _view(snapshot.tier(tier), revisions[tier], service.spec.tier(tier).initial_replicas)
        for tier in service.spec.topology.tiers
    ]
    former = [
        tier
        for tier in Tier
        if tier not in service.spec.topology.tiers and snapshot.tier(tier).present
    ]
    overall = _overall(views, former, snapshot.refusal)
    verdicts = [*overall, *(_of_tier(view) for view in views)]
    generation = service.metadata.generation
    dated = (_dated(verdict, previous.conditions, generation, now) for verdict in verdicts)
    return ServiceStatus(
        observed_generation=generation,
        conditions=tuple(dated),
        tiers=tuple(_tier_status(view, revisions[view.snapshot.tier]) for view in views),
        url=naming.url(service),
    )


def status_of_invalid(
    generation: int, problem: str, previous: ServiceStatus, now: str
) -> ServiceStatus:
    """The status of a resource whose spec cannot be read; nothing of it is changed until it can."""
    verdicts = (
        _Verdict(ConditionType.READY, "False", Reason.INVALID_SPEC, problem[:MESSAGE_LIMIT]),
        _Verdict(ConditionType.STALLED, "True", Reason.INVALID_SPEC, problem[:MESSAGE_LIMIT]),
    )
    dated = (_dated(verdict, previous.conditions, generation, now) for verdict in verdicts)
    return previous.model_copy(
        update={"observed_generation": generation, "conditions": tuple(dated)}
    )


def status_of_left_alone(
    reason: Reason, message: str, previous: ServiceStatus, now: str
) -> ServiceStatus:
    """The status of a resource that is not looked at for ``reason``: what was seen last stays, the
    generation that it was seen of too, and it is stalled."""
    abnormal = (ConditionType.RECONCILING, ConditionType.STALLED)
    kept = (one for one in previous.conditions if one.type not in abnormal)
    verdict = _Verdict(ConditionType.STALLED, "True", reason, message)
    seen = max(previous.observed_generation, 0)  # a resource may be new
    stalled = _dated(verdict, previous.conditions, seen, now)
    return previous.model_copy(update={"conditions": (*kept, stalled)})


def _view(snapshot: TierSnapshot, revision: str, initial: int) -> _TierView:
    staying = [pod for pod in snapshot.pods if not pod.terminating]
    updated = [pod for pod in staying if pod.revision == revision]
    return _TierView(
        snapshot=snapshot,
        desired=snapshot.desired if snapshot.present else initial,
        current=snapshot.revision == revision,
        updated=len(updated),
        ready=sum(pod.ready for pod in updated),
        outdated=len(staying) - len(updated),
        complete=is_complete(snapshot, revision),
    )


def _overall(
    views: Sequence[_TierView], former: Sequence[Tier], refusal: Trouble | None
) -> list[_Verdict]:
    """Conditions of the whole. Tiers of the ``former`` topology serve no longer but still stand."""
    waiting = [view for view in views if not view.complete]
    troubles = [refusal, *(_named(view) for view in waiting)]
    stalling = next((trouble for trouble in troubles if trouble and trouble.stalls), None)
    if not waiting and refusal is None:
        message = "every pod of every tier has the current revision and is ready"
        ready = _Verdict(ConditionType.READY, "True", Reason.ALL_TIERS_READY, message)
        return [ready, *_going(former)]
    progress = "; ".join(_progress(view) for view in waiting)
    if refusal is not None and not refusal.stalls:
        return [
            _Verdict(ConditionType.READY, "False", refusal.reason, refusal.message),
            _Verdict(ConditionType.RECONCILING, "True", refusal.reason, refusal.message),
        ]
    if stalling is not None:
        return [
            _Verdict(ConditionType.READY, "False", stalling.reason, stalling.message),
            _Verdict(ConditionType.STALLED, "True", stalling.reason, stalling.message),
        ]
    causes = "; ".join(_held_up(view) for view in waiting)[:_WHOLE_LIMIT]
    return [
        _Verdict(ConditionType.READY, "False", Reason.TIERS_NOT_READY, causes),
        _Verdict(ConditionType.RECONCILING, "True", Reason.ROLLING_OUT, progress),
    ]


def _named(view: _TierView) -> Trouble | None:
    """The tier's trouble, as it is told beside those of other tiers."""
    if view.trouble is None:
        return None
    return replace(view.trouble, message=f"{view.snapshot.tier}: {view.trouble.message}")


def _going(former: Sequence[Tier]) -> list[_Verdict]:
    if not former:
        return []
    message = f"{' and '.join(former)} of the former topology: to be deleted"
    return [_Verdict(ConditionType.RECONCILING, "True", Reason.ROLLING_OUT, message)]


def _of_tier(view: _TierView) -> _Verdict:
    type_ = _TIER_CONDITIONS[view.snapshot.tier]
    if view.complete and view.snapshot.rests:
        message = f"{view.snapshot.tier}: no pods while no picture comes"
        return _Verdict(type_, "True", Reason.RESTING, message)
    if view.complete:
        return _Verdict(type_, "True", Reason.PODS_READY, _progress(view))
    trouble = view.trouble
    if trouble is not None:
        return _Verdict(type_, "False", trouble.reason, trouble.message)
    return _Verdict(type_, "False", Reason.ROLLING_OUT, _progress(view))


def _progress(view: _TierView) -> str:
    text = f"{view.snapshot.tier}: {view.ready} of {view.desired} pods ready"
    if not view.current:
        text += ", the current revision is not applied yet"
    if view.outdated:
        text += f", {view.outdated} of an older revision"
    if view.ready == view.desired and not view.outdated and not view.snapshot.rolled_out:
        text += ", which its Deployment does not say yet"
    return text


def _held_up(view: _TierView) -> str:
    """The tier's progress, with what it waits for if that is known."""
    cause = view.trouble
    return _progress(view) + (f" ({cause.reason}: {cause.message})" if cause else "")


def _dated(
    verdict: _Verdict, previous: Iterable[Condition], generation: int, now: str
) -> Condition:
    since = next(
        (
            one.last_transition_time
            for one in previous
            if (one.type, one.status) == (verdict.type, verdict.status)
        ),
        now,
    )
    return Condition(
        type=verdict.type,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message,
        last_transition_time=since,
        observed_generation=generation,
    )


def _tier_status(view: _TierView, revision: str) -> TierStatus:
    scaling = view.snapshot.scaling
    return TierStatus(
        name=view.snapshot.tier,
        pods=f"{view.ready}/{view.desired}",
        desired=view.desired,
        ready=view.ready,
        updated=view.updated,
        revision=revision,
        limited_by=f"{scaling.reason}: {scaling.message}" if scaling else "",
    )
