import json

from bench.operator import shape
from bench.operator.shape import Child


def test_the_change_reaches_one_tier_alone() -> None:
    assert shape.changed_children("a") == {
        Child("configmaps", "a-decode"),
        Child("deployments", "a-decode"),
    }


def test_the_children_are_those_of_four_tiers() -> None:
    names = shape.children("a")
    assert len(names) == 1 + 4 * 5 + 1
    assert Child("serviceaccounts", "a") in names
    assert Child("horizontalpodautoscalers", "a-encoder") in names


def test_a_change_is_a_merge_patch_of_the_field() -> None:
    assert shape.change("45s") == {"spec": {"tiers": {"decode": {"drain": {"timeout": "45s"}}}}}


def test_templates_name_what_differs_from_resource_to_resource() -> None:
    text = json.dumps(shape.templates()["byValue"])
    assert set(shape.VALUES) == set(json.loads(text))
    for word in (shape.NAME, shape.NAMESPACE, shape.UID):
        assert word in text
