"""Installed by its chart, under load on real pods: nothing that a user changes costs a request."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import triptych_models
from cluster.waiting import eventually
from coherence.steady_load import steady_load as asking
from coherence.versions import CYCLE, questions
from node.one_node import OneNode
from node_questions import Question, about, ask
from product import EXAMPLE, SYSTEM, Object, Product, product
from request_logs import pipelines
from rolled_pods import RolledPods
from steady_load import steady_load
from triptych_contract.names import Cache
from triptych_operator.cli.manifests import DEFAULT_IMAGE

TAG = DEFAULT_IMAGE.rpartition(":")[2]
WORKER = "docker.io/library/triptych-worker"
OPERATOR = "docker.io/library/triptych-operator"
MODELS = Path(triptych_models.__file__).parent / "shapes"
# A folder of the node as a claim that pods can mount.
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: models}}
spec:
  accessModes: [ReadOnlyMany]
  capacity: {{storage: 1Gi}}
  storageClassName: ""
  hostPath: {{path: "{folder}", type: Directory}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: models, namespace: default}}
spec:
  accessModes: [ReadOnlyMany]
  resources: {{requests: {{storage: 1Gi}}}}
  storageClassName: ""
  volumeName: models
"""
QUESTIONS = tuple(about(seed, "at") for seed in range(9_000_010, 9_000_016))
POOLS = ("encoder", "prefill", "decode")
UNSEEN = about(9_000_016, "at")
# So many that hardly ever one of two encoders is the place of them all.
MANY = tuple(about(seed, "at") for seed in range(9_000_100, 9_000_112))

# There and back; in full every kind of change, five times.
SWITCHES = (CYCLE[1], CYCLE[0])
if os.environ.get("TRIPTYCH_SWEEP") == "full":
    SWITCHES = (*CYCLE[1:], CYCLE[0]) * 5

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
    """The example, with a second prefill. Once it is scaled down, two versions have room side by
    side on two cores."""
    installed.node.kubectl("apply", "-f", str(EXAMPLE))
    installed.change({"tiers": {"prefill": {"replicas": 2}}})
    installed.until("Ready", "CachesCoherent")
    return installed


@pytest.fixture(scope="module")
def volume(shapes: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that pods reach by the claim ``models``."""
    folder = tmp_path_factory.mktemp("models")
    folder.chmod(0o755)
    shapes.node.kubectl("apply", "-f", "-", manifest=VOLUME.format(folder=folder))
    yield folder
    shapes.node.kubectl("delete", "pvc/models", "pv/models", "--wait=false")  # its pods go later


def test_the_columns_tell_the_pools(shapes: Product) -> None:
    line = shapes.node.kubectl("get", "mms", "shapes", "--no-headers").split()
    assert line[:7] == ["shapes", "True", "FullSplit", "2/2", "2/2", "2/2", "1"]


def test_scaling_down_under_load_loses_nothing(shapes: Product) -> None:
    before = settled(shapes)
    with pipelines(shapes) as served, steady_load(shapes.url(), *MANY, threads=4) as load:
        load.wait_for(36, 120)  # each question is asked
        shapes.change({"tiers": {tier: {"replicas": 1} for tier in POOLS}})
        shapes.until("Ready")
        staying = shapes.addresses(ending=False)
        shapes.wait_gone(before - staying)
        load.wait_for(6, 120)
    assert load.failed == load.wrong == []
    assert len(before) == 7
    assert len(staying) == 4
    assert served.used(before - shapes.addresses("gateway"))


async def test_encoders_and_resolutions_change_under_load_and_no_answer_is_stale(
    shapes: Product,
) -> None:
    prefill, decode = shapes.pods("prefill"), shapes.pods("decode")
    service = RolledPods(shapes)
    async with asking(questions(), shapes.url().removesuffix("/v1")) as load:
        for version in SWITCHES:
            await service.switch(version, load)
    print(f"{len(load.asked)} requests; seconds until caches were coherent: {service.seconds}")
    assert load.failed == []
    assert load.stale(service.versions) == []
    assert {one.fingerprint for one in load.asked} == set(service.versions)
    assert len(service.versions) == len(set(SWITCHES))
    assert shapes.pods("prefill") == prefill
    assert shapes.pods("decode") == decode

    def hits() -> dict[str, int]:
        found = {one["name"]: one["hits"] for one in service.caches()["use"]}
        return found if sum(found.values()) and found.keys() == set(Cache) else {}

    await eventually(hits, "hits of every cache in the status", seconds=180)


def test_every_topology_is_reached_under_load(shapes: Product) -> None:
    url = shapes.url()
    with steady_load(url, *QUESTIONS) as load:
        for topology in ("Fused", "FullSplit", "EncodeSplit", "FullSplit"):
            # Fused has no pools to say anything of.
            shapes.change({"topology": topology, "degraded": None, "tiers": dict.fromkeys(POOLS)})
            shapes.until("Ready")
            load.wait_for(4, 120)
        shapes.until("CachesCoherent")
    assert load.failed == []
    assert load.wrong == []
    assert shapes.url() == url


@pytest.mark.parametrize("change", ["image", "model"])
def test_a_new_version_rolls_out_under_load_and_no_request_meets_two(
    shapes: Product, volume: Path, change: str
) -> None:
    spec = new_image(shapes) if change == "image" else new_model(volume)
    old = settled(shapes)
    with pipelines(shapes) as served, steady_load(shapes.url(), *QUESTIONS) as load:
        load.wait_for(6, 120)
        shapes.change(spec)
        shapes.until("Ready", "CachesCoherent")
        shapes.wait_gone(old)
        load.wait_for(6, 120)
    assert load.failed == load.wrong == []
    new = shapes.addresses()
    assert len(new) == len(old) == len(new | old) / 2
    assert served.all_within(old, new)


def settled(shapes: Product) -> frozenset[str]:
    """Addresses of all pods, once those of earlier changes have ended."""
    shapes.wait_gone(shapes.addresses("fused"))  # of the last topology: pruned after Ready
    staying = shapes.addresses(ending=False)
    shapes.wait_gone(shapes.addresses() - staying)
    return staying


def new_image(shapes: Product) -> Object:
    shapes.node.tag(f"{WORKER}:{TAG}", f"{WORKER}:next")
    return {"engine": {"image": "triptych-worker:next"}}


def new_model(volume: Path) -> Object:
    """The same weights by another name: only pods that are told so hold the new revision."""
    shutil.copytree(MODELS / "1", volume / "second", dirs_exist_ok=True)
    return {"model": {"source": "pvc://models/second", "revision": "2"}}


def test_an_upgraded_operator_restarts_no_pod_of_a_service(shapes: Product) -> None:
    before = shapes.pods()
    old = shapes.node.kubectl("get", "pods", "-n", SYSTEM, "-o", "name").split()
    shapes.node.tag(f"{OPERATOR}:{TAG}", f"{OPERATOR}:next")
    with steady_load(shapes.url(), *QUESTIONS, threads=1) as load:
        shapes.upgrade("image.tag=next", f"workerImage.tag={TAG}")
        load.wait_for(6, 120)
    assert load.failed == []
    shapes.node.kubectl("wait", "-n", SYSTEM, "--for=delete", *old, "--timeout=60s")
    image = "jsonpath={.items[*].spec.containers[*].image}"
    images = shapes.node.kubectl("get", "pods", "-n", SYSTEM, "-o", image)
    assert set(images.split()) == {"triptych-operator:next"}
    assert shapes.pods() == before
    shapes.node.kubectl("delete", "pdb", "shapes-decode")
    shapes.node.kubectl("wait", "--for=create", "pdb/shapes-decode", "--timeout=50s")
    assert shapes.pods() == before


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
    assert load.failed == []
    assert shapes.pods() == before


def test_encoders_rest_while_no_picture_comes_and_the_first_one_brings_them_back(
    shapes: Product,
) -> None:
    rests = {"min": 1, "max": 2, "scaleToZeroAfter": "15s"}
    shapes.change(
        {
            "tiers": {"encoder": {"replicas": None, "autoscaling": rests}},
            "degraded": {"onEncoderLoss": "Queue", "queueTimeout": "5m"},
        }
    )
    shapes.until("Ready")
    with openai.OpenAI(base_url=shapes.url(), api_key="none", max_retries=0) as client:
        assert ask(client, QUESTIONS[0]) == QUESTIONS[0].answer
        shapes.wait_gone(shapes.addresses("encoder"))
        shapes.until("Ready")  # it serves: nothing is missing that anybody asks for
        assert shapes.pods("encoder") == {}
        words = Question((), "what is at top left?", "")
        ask(client, words)
        assert shapes.pods("encoder") == {}
        assert ask(client, UNSEEN) == UNSEEN.answer
    assert len(shapes.pods("encoder")) == 1
