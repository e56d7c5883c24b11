from triptych_operator.controller.settings import Election, OperatorSettings, Pace
from triptych_operator.desired.platform import Platform


def test_all_namespaces_are_one_scope() -> None:
    settings = OperatorSettings(Platform(image="worker:1"))
    assert settings.scopes == (None,)
    assert OperatorSettings(Platform(image="w"), namespaces=("a", "b")).scopes == ("a", "b")


def test_a_leader_has_several_attempts_to_renew() -> None:
    election = Election("n")
    assert election.renew * 3 < election.duration * 2 / 3


def test_what_a_watch_misses_is_found_within_seconds() -> None:
    assert Pace().audit <= 20
    assert Pace().last_retry <= 60
