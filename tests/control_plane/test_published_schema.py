"""What a user sees of the resource definition: what the server publishes, explains and lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster.api import Api
from cluster.control_plane import ControlPlane
from cluster.kubectl import Cluster
from control_plane.spec_places import ITEM, KEY, places
from mms_builders import manifest
from triptych_operator.crd.definition import definition, schema_stamp
from triptych_operator.crd.version import OPENAPI_PATH, Skew, skew

DEFINITION: Any = definition()
[VERSION] = DEFINITION["spec"]["versions"]
COLUMNS = [
    column["name"].upper()
    for column in VERSION["additionalPrinterColumns"]
    if not column.get("priority")
]


async def test_a_user_without_rights_can_tell_the_version_of_the_schema(
    control_plane: ControlPlane,
) -> None:
    async with Api(control_plane.kubeconfig_for("nobody")) as api:
        document = await api.get(OPENAPI_PATH)
    assert skew(document, schema_stamp()) is Skew.SAME
    assert skew(document, "0-000000000000") is Skew.NEWER_OR_OTHER
    assert skew(document, "999-000000000000") is Skew.OLDER


def test_every_field_is_explained(cluster: Cluster) -> None:
    lines = cluster.kubectl("explain", "mms", "--recursive").splitlines()
    told = {line.split("\t")[0].strip() for line in lines}
    fields = {place.path[-1] for place in places() if place.path[:1] == ("spec",)}
    assert fields - {ITEM, KEY} <= told


@pytest.mark.parametrize(
    ("field", "lesson"),
    [
        ("mms", "A vision-language model served by pools of encoder, prefill and decode pods"),
        ("mms.spec.tiers.encoder", "Turns pictures into embeddings"),
        ("mms.spec.tiers.encoder.autoscaling.metrics.signal", "encoder: ImagesPerSecond"),
        ("mms.spec.model.servedName", "It cannot be changed"),
        ("mms.spec.topology", "ENUM:"),
        ("mms.status.conditions", "Ready is true when every pod"),
    ],
)
def test_explain_teaches(cluster: Cluster, field: str, lesson: str) -> None:
    text = " ".join(cluster.kubectl("explain", field).split())
    assert lesson in text


def test_a_resource_is_listed_by_its_short_name_and_its_category(
    cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl("create", f"-n={namespace}", "-f", "-", manifest=json.dumps(manifest()))
    [header, row] = cluster.kubectl("get", "mms", f"-n={namespace}").splitlines()
    assert header.split() == ["NAME", *COLUMNS]
    assert row.split()[:2] == ["shapes", "FullSplit"]
    listed = cluster.kubectl("get", "triptych", f"-n={namespace}", "-o=name")
    assert listed.split() == ["multimodalservice.triptych.dev/shapes"]
