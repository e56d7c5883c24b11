from triptych_contract.names import Tier
from triptych_operator.api.status import Condition, ConditionType, ServiceStatus, TierStatus
from triptych_operator.cli.resource import Found
from triptych_operator.cli.status import lines

SINCE = "2026-01-01T00:00:00Z"


def condition(type_: ConditionType, status: str, reason: str, message: str) -> Condition:
    return Condition.model_validate(
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": SINCE,
        }
    )


def tier(name: Tier, pods: str, limited_by: str = "") -> TierStatus:
    return TierStatus(
        name=name, pods=pods, desired=2, ready=1, updated=2, revision="0123", limited_by=limited_by
    )


def found(status: ServiceStatus, generation: int = 3) -> Found:
    return Found("prod", "shapes", generation, "Fused", status)


STATUS = ServiceStatus(
    observed_generation=3,
    url="http://shapes-gateway.prod.svc:8000",
    conditions=(
        condition(ConditionType.READY, "False", "ImagePullBackOff", "image a:1: not found"),
        condition(ConditionType.STALLED, "True", "ImagePullBackOff", "image a:1: not found"),
        condition(ConditionType.FUSED_READY, "False", "ImagePullBackOff", "image a:1: not found"),
        condition(ConditionType.GATEWAY_READY, "True", "PodsReady", "gateway: 2 of 2 pods ready"),
    ),
    tiers=(tier(Tier.FUSED, "1/2"), tier(Tier.GATEWAY, "2/2", "AutoscalerCannotRead: no cpu")),
)


def test_it_names_the_service_its_conditions_and_each_tier_with_its_cause() -> None:
    assert list(lines(found(STATUS))) == [
        "prod/shapes   Fused   http://shapes-gateway.prod.svc:8000",
        f"Ready False since {SINCE}: ImagePullBackOff: image a:1: not found",
        f"Stalled True since {SINCE}: ImagePullBackOff: image a:1: not found",
        "",
        "TIER     READY  UPDATED  REVISION  WHY",
        "fused    1/2    2        0123      ImagePullBackOff: image a:1: not found",
        "gateway  2/2    2        0123      AutoscalerCannotRead: no cpu",
    ]


def test_a_change_that_the_operator_has_not_seen_is_told() -> None:
    told = list(lines(found(ServiceStatus(), generation=1)))
    assert told == [
        "prod/shapes   Fused",
        "no operator has seen this yet: is it running?",
    ]
