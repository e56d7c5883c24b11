"""Values to try at a place of the resource: the extremes that its schema allows, others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from control_plane.spec_places import REMOVED, Place

NOT_THERE: Final = {"removed": REMOVED, "null": None}


def right_values(place: Place) -> dict[str, object]:
    """The smallest and the largest values that the schema allows at ``place``, by name."""
    schema = place.schema
    if "signal" in place.path:
        return {"first": "CPUUtilization"}  # which others there are differs from tier to tier
    if "enum" in schema:
        return {"first": schema["enum"][0], "last": schema["enum"][-1]}
    if schema.get("type") == "integer":
        return {"least": schema["minimum"], "most": schema["maximum"]}
    if "x-kubernetes-int-or-string" in schema:
        return _right_numbers(schema)
    if schema.get("type") == "string":
        return _right_texts(schema)
    return _right_objects(place)


def wrong_values(place: Place) -> dict[str, object]:
    """Values that are of another type, or beyond the extremes, by name."""
    schema = place.schema
    kind = "number" if "x-kubernetes-int-or-string" in schema else schema.get("type")
    wrong: dict[str, object] = {"truth": True}
    if kind == "integer":
        return wrong | {"less": schema["minimum"] - 1, "more": schema["maximum"] + 1, "text": "1"}
    if kind == "number":
        return wrong | {"less": schema["minimum"] - 1, "more": schema["maximum"] + 1, "word": "x"}
    if kind == "string":
        longer = {"longer": "a" * (schema["maxLength"] + 1)} if "maxLength" in schema else {}
        refused = {"nonsense": "?!\n"} if _says_what_it_is(schema) else {}
        return wrong | longer | refused | {"number": 1}
    if kind == "array":
        return wrong | {"longer": ["a"] * (schema["maxItems"] + 1), "object": {"a": 1}}
    if kind == "object":
        return wrong | {"text": "a", "list": []}
    return {"object": {"a": 1}, "list": [1], "no field": {}, "no item": []}  # any scalar


def empty_values(place: Place) -> dict[str, object]:
    """What says nothing, of the type that ``place`` has; whether it is right is not said."""
    empty = {"array": [], "object": {}, "string": ""}.get(place.schema.get("type", ""))
    return NOT_THERE if empty is None else {**NOT_THERE, "empty": empty}


# A rich part of a PodSpec, in notations that the API server does not keep.
POD_SPEC: Final[dict[str, Any]] = {
    "nodeSelector": {"gpu": "big"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": None}],
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {
                        "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]
                    },
                }
            ]
        }
    },
    "priorityClassName": "system-cluster-critical",
    "topologySpreadConstraints": None,
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}}],
    "containers": [
        {
            "name": "triptych",
            "env": [{"name": "UCX_TLS", "value": "tcp"}, {"name": "EMPTY", "value": ""}],
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm", "readOnly": False}],
        },
        {
            "name": "sidecar",
            "image": "sidecar:1",
            "resources": {"requests": {"cpu": 0.5, "memory": "1000Ki"}, "limits": {"cpu": "1000m"}},
        },
    ],
}

# By the beginning of the message of the rule that says what a text is.
_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "not a model source": ("pvc://a/b", f"hf://a/{'b' * 505}"),
    "not an image reference": ("a", f"a/{'b' * 510}"),
    "not the name of a claim": ("a", "a" * 253),
    "not a duration: write": ("0s", "999999h999999m999999s999999ms"),
    "not a duration above 0": ("1ms", "999999h999999m999999s999999ms"),
    "not the name of a metric": ("_", "a" * 253),
    "not a network": ("0.0.0.0/0", "1111:2222:3333:4444:5555:6666:7777:8888/128"),
    "not the value of a label": ("", "a" * 63),
    "not the name of a header": ("", "X" * 63),
}
_LONG: Final = 5000  # of texts that the schema does not bound


def _right_numbers(schema: Mapping[str, Any]) -> dict[str, object]:
    least, most = schema["minimum"], schema["maximum"]
    texts = ["999999999k", "70"]  # of CPUUtilization
    if most > 10**9:
        texts = ["999999Ti", f"{10**15 - 1}", "1024Ki", "1000000k"]
    if "num" in schema["pattern"]:
        texts += ["1n", "0.000000001", "1000m", "0.5", "1.5Gi", "100e3", "999999.999999999T"]
    return {"least": least, "most": most} | {text: text for text in texts}


def _right_texts(schema: Mapping[str, Any]) -> dict[str, object]:
    messages = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    for begin, (least, most) in _TEXTS.items():
        if any(message.startswith(begin) for message in messages):
            return {"least": least, "most": most}
    return {"least": "a" * schema.get("minLength", 0), "most": "é" * schema.get("maxLength", _LONG)}


def _right_objects(place: Place) -> dict[str, object]:
    if place.path[-2:] == ("template", "spec"):
        return {"rich": POD_SPEC}
    if "type" not in place.schema:
        return {"text": "a", "number": -0.5, "truth": False}
    return {}  # what is in it has a place of its own


def _says_what_it_is(schema: Mapping[str, Any]) -> bool:
    messages = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    return "enum" in schema or any(message.startswith("not ") for message in messages)
