from triptych_contract.names import Tier
from triptych_gateway.api.app import Readiness


def test_a_gateway_begins_once_there_was_a_whole_pipeline() -> None:
    readiness = Readiness()
    assert readiness.waits_for([Tier.ENCODER]) == [Tier.ENCODER]
    assert readiness.waits_for([]) == []
    assert readiness.waits_for([Tier.ENCODER]) == [], "text goes on"
    assert readiness.waits_for([Tier.ENCODER, Tier.DECODE]) == [Tier.DECODE]


def test_encoders_that_may_rest_are_not_waited_for() -> None:
    readiness = Readiness(encoder_rests=True)
    assert readiness.waits_for([Tier.ENCODER]) == []
    assert readiness.waits_for([Tier.ENCODER, Tier.PREFILL]) == [Tier.PREFILL]
