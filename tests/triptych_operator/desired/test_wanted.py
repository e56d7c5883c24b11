from typing import Any

import pytest
from mms_builders import manifest, service
from triptych_contract.errors import InvalidRequest
from triptych_contract.names import Tier
from triptych_operator.desired.deployments import revision
from triptych_operator.desired.difference import sealed
from triptych_operator.desired.platform import Platform
from triptych_operator.desired.state import desired_state
from triptych_operator.desired.wanted import WantedCache

PLATFORM = Platform(image="triptych-worker:test")


def _body(name: str = "shapes", **changes: Any) -> dict[str, Any]:
    body = manifest(**changes)
    body["metadata"] = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    return body


def test_it_is_the_sealed_desired_state_with_its_revisions() -> None:
    wanted = WantedCache(PLATFORM).of(_body())
    of_service = wanted.service
    assert list(wanted.manifests) == [sealed(one) for one in desired_state(of_service, PLATFORM)]
    assert wanted.revisions == {
        tier: revision(of_service, tier, PLATFORM) for tier in of_service.spec.topology.tiers
    }


@pytest.mark.parametrize("tiers", [(), (Tier.ENCODER, Tier.DECODE)])
def test_manifests_of_some_tiers_are_the_desired_state_of_those(tiers: tuple[Tier, ...]) -> None:
    wanted = WantedCache(PLATFORM).of(_body())
    expected = desired_state(wanted.service, PLATFORM, tiers)
    assert wanted.of_tiers(tiers) == [sealed(one) for one in expected]


def test_a_status_changes_nothing_and_a_spec_or_annotation_everything() -> None:
    cache, body = WantedCache(PLATFORM), _body()
    first = cache.of(body)
    assert cache.of({**body, "status": {"url": "http://there"}}) is first
    assert cache.of(_body(tiers__decode__replicas=3)) is not first
    annotated = {**body, "metadata": {**body["metadata"], "annotations": {"a": "b"}}}
    assert cache.of(annotated).service.metadata.annotations == {"a": "b"}


def test_only_what_was_asked_for_last_is_kept() -> None:
    cache = WantedCache(PLATFORM, kept=2)
    a, b = cache.of(_body("a")), cache.of(_body("b"))
    assert cache.of(_body("a")) is a
    cache.of(_body("c"))
    assert cache.of(_body("a")) is a
    assert cache.of(_body("b")) is not b


def test_an_invalid_resource_is_refused_every_time() -> None:
    cache, body = WantedCache(PLATFORM), _body(topology="None")
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=r"default/shapes: spec\.topology"):
            cache.of(body)


def test_the_resource_is_the_one_of_its_builder() -> None:
    assert WantedCache(PLATFORM).of(_body()).service.spec == service().spec
