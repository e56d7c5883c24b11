import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from triptych_operator.api.quantities import (
    Bytes,
    PositiveBytes,
    PositiveQuantity,
    Quantity,
    is_whole,
    parse_bytes,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"), ("2", "2"), ("0.5", "0.5"), ("500m", "0.5"), ("1k", "1000"), ("1Ki", "1024"),
        ("1.5Gi", str(3 * 2**29)), ("1e3", "1000"), ("2E-1", "0.2"), ("1T", str(10**12)),
        ("100n", "0.0000001"),
    ],
)  # fmt: skip
def test_a_quantity_has_the_value_that_kubernetes_gives_it(text: str, value: str) -> None:
    assert float(parse_quantity(text)) == float(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "-1", "1 Gi", "1gi", "1KI", "1,5", ".5", "1\n", "0x10", "1E", "1Pi", "1e10",
        "1" * 16, "1000000Ti",
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)
    with pytest.raises(ValidationError, match="not a Kubernetes quantity"):
        TypeAdapter(Quantity).validate_python(text)


@pytest.mark.parametrize("text", ["1", "10", "0.5", "500m", "20k", "0.001", "0.01", "100", "1.25"])
def test_a_positive_quantity_is_above_nothing(text: str) -> None:
    assert parse_quantity(TypeAdapter(PositiveQuantity).validate_python(text)) > 0


@pytest.mark.parametrize("text", ["0", "0.0", "0m", "00", "-1", "", "0.0001", "007"])
def test_nothing_is_no_positive_quantity(text: str) -> None:
    with pytest.raises(ValidationError, match="not a quantity above 0"):
        TypeAdapter(PositiveQuantity).validate_python(text)


@given(st.integers(0, 10**6 - 1), st.sampled_from(["", "k", "Ki", "M", "Mi", "G", "Gi"]))
def test_every_size_that_passes_is_a_whole_number_of_bytes(number: int, suffix: str) -> None:
    factor = {"": 1, "k": 1000, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
    text = TypeAdapter(Bytes).validate_python(f"{number}{suffix}")
    assert parse_bytes(text) == number * factor[suffix]


def test_a_size_may_be_a_plain_number_but_not_a_truth_value() -> None:
    assert TypeAdapter(Bytes).validate_json("1048576") == "1048576"
    with pytest.raises(ValidationError, match="valid string"):
        TypeAdapter(Bytes).validate_json("true")


@pytest.mark.parametrize("size", ["1", "1Ki", "999999Ti", "9" * 15, 10**15 - 1])
def test_a_size_above_0_may_have_every_unit(size: str | int) -> None:
    assert parse_bytes(TypeAdapter(PositiveBytes).validate_python(size)) > 0


@pytest.mark.parametrize("size", ["0", "00", "0Mi", "01", 0, 10**15])
def test_nothing_is_no_size_above_0(size: str | int) -> None:
    with pytest.raises(ValidationError, match="not a size above 0"):
        TypeAdapter(PositiveBytes).validate_python(size)


@pytest.mark.parametrize("text", ["1.5", "500m", "-1", "1e3", "12 Mi", ""])
def test_a_size_in_parts_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="not a size"):
        TypeAdapter(Bytes).validate_python(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("0", True), ("12", True), ("2k", True), ("1.5k", True), ("1e3", True), ("1.5e1", True),
        ("1Gi", True), ("0.5", False), ("1.0", False), ("1000m", False), ("1e-1", False),
        ("1.0005k", False), ("1.5Gi", False),
    ],
)  # fmt: skip
def test_a_whole_number_is_one_in_the_eyes_of_cel(text: str, whole: bool) -> None:
    assert is_whole(text) == whole
