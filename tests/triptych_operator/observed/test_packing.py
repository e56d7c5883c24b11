from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_operator.observed.packing import Packer, unpack

Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.text(max_size=8), Json), min_size=1, max_size=5))
def test_every_object_comes_back(bodies: list[dict[str, Any]]) -> None:
    packer = Packer()
    packed = [packer.pack(body) for body in bodies]
    assert [unpack(one, packer.against) for one in packed] == bodies


@pytest.mark.parametrize("first", [True, False], ids=["the first", "a later one"])
def test_equal_objects_are_packed_into_equal_bytes(first: bool) -> None:
    packer = Packer()
    if not first:
        packer.pack({"spec": {"a": 1}})
    assert packer.pack({"a": 1, "b": [2]}) == packer.pack({"b": [2], "a": 1})
    assert packer.pack({"a": 1, "b": [2]}) != packer.pack({"a": 1, "b": [3]})


def test_what_is_like_the_first_takes_next_to_nothing() -> None:
    packer = Packer()
    spec = {f"field-{number}": f"value {number * 7919}" for number in range(100)}
    packer.pack({"name": "a", "spec": spec})
    assert len(packer.pack({"name": "b", "spec": spec})) < 60
