"""Installed by its chart, under load on real pods: nothing that a user changes costs a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.one_node import OneNode
from node_questions import about
from product import EXAMPLE, Product, product
from steady_load import SteadyLoad, steady_load
from triptych_models.shapes import rotate_colours

STARVED = 1  # requests of one load
QUESTIONS = tuple(about(seed, "at") for seed in range(9_000_010, 9_000_016))

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(3600),  # the first time builds Kubernetes, Helm and the images
]


@pytest.fixture(scope="module")
def installed(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with product(node, tmp_path_factory.mktemp("helm")) as made:
        yield made


@pytest.fixture(scope="module")
def shapes(installed: Product) -> Product:
    """The example, small enough to have two versions side by side on two cores."""
    installed.node.kubectl("apply", "-f", str(EXAMPLE))
    installed.change({"tiers": {"encoder": {"replicas": 1}, "decode": {"replicas": 1}}})
    installed.until("Ready", "CachesCoherent")
    return installed


def check_lost(load: SteadyLoad) -> None:
    """No request is lost to a change. A machine that keeps a pod from answering for twelve seconds
    may cost one: the gateway gives that pod up, and says to come back."""
    assert len(load.failed) <= STARVED
    assert all("503" in one.error for one in load.failed)


def check(load: SteadyLoad, old: str, new: str) -> None:
    """Every answer is right for the encoder that it names; the second one rotates colours."""
    check_lost(load)
    wrong = [
        one
        for one in load.asked
        if not one.error
        and one.answer
        != (rotate_colours(one.question.answer) if one.fingerprint == new else one.question.answer)
    ]
    assert wrong == []
    assert set(load.fingerprints) <= {old, new}


def test_the_columns_tell_the_pools(shapes: Product) -> None:
    line = shapes.node.kubectl("get", "mms", "shapes", "--no-headers").split()
    assert line[:7] == ["shapes", "True", "FullSplit", "1/1", "1/1", "1/1", "1"]


def test_a_new_encoder_takes_over_under_load_and_no_answer_is_stale(shapes: Product) -> None:
    prefill, decode = shapes.pods("prefill"), shapes.pods("decode")
    old = shapes.resource()["status"]["caches"]["fingerprint"]
    epoch = shapes.resource()["status"]["caches"]["epoch"]
    with steady_load(shapes.url(), *QUESTIONS) as load:
        load.wait_for(6, 120)
        shapes.change({"model": {"encoder": {"source": "builtin://shapes", "revision": "2"}}})
        shapes.until("Ready", "CachesCoherent")
        load.wait_for(6, 120)
    caches = shapes.resource()["status"]["caches"]
    new = caches["fingerprint"]
    assert load.fingerprints == [old, new]
    check(load, old, new)
    assert (caches["epoch"], caches["reason"]) == (epoch + 1, "EncoderChanged")
    assert shapes.pods("prefill") == prefill
    assert shapes.pods("decode") == decode

    with steady_load(shapes.url(), *QUESTIONS) as load:
        shapes.change({"model": {"encoder": None}})
        shapes.until("Ready", "CachesCoherent")
        load.wait_for(6, 120)
    assert load.fingerprints[-1] == old
    check(load, old, new)


def test_every_topology_is_reached_under_load(shapes: Product) -> None:
    url = shapes.url()
    with steady_load(url, *QUESTIONS) as load:
        split = {"encoder": None, "prefill": None, "decode": None}
        shapes.change({"topology": "Fused", "degraded": None, "tiers": split})
        shapes.until("Ready")
        load.wait_for(4, 120)
        shapes.change({"topology": "EncodeSplit"})
        shapes.until("Ready")
        load.wait_for(4, 120)
        shapes.change({"topology": "FullSplit"})
        shapes.until("Ready", "CachesCoherent")
        load.wait_for(4, 120)
    check_lost(load)
    assert all(one.answer == one.question.answer for one in load.asked if not one.error)
    assert shapes.url() == url


def test_an_uninstalled_operator_leaves_pods_serving_and_adopts_them_again(
    shapes: Product,
) -> None:
    before = shapes.pods()
    with steady_load(shapes.url(), *QUESTIONS, threads=1) as load:
        shapes.uninstall()
        load.wait_for(3, 120)
        shapes.install()
        shapes.until("Ready")
        load.wait_for(3, 120)
    check_lost(load)
    assert shapes.pods() == before
