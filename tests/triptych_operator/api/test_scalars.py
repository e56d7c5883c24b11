import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from triptych_operator.api.scalars import (
    Bytes,
    Duration,
    ImageReference,
    ModelSource,
    Network,
    PositiveBytes,
    PositiveDuration,
    PositiveQuantity,
    Quantity,
    parse_bytes,
    parse_quantity,
    parse_seconds,
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
    ("text", "seconds"),
    [("0s", 0), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("1m500ms", 60.5)],
)
def test_a_duration_has_its_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(TypeAdapter(Duration).validate_python(text)) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "s",
        "-1s",
        "1d",
        "30 s",
        "1.5",
        "30s\n",
        "30s30s",
        "1s1m",
        "9999999h",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="not a duration"):
        TypeAdapter(Duration).validate_python(text)


@pytest.mark.parametrize("text", ["0s", "0h0m", "00ms", "", "1"])
def test_nothing_is_no_duration_above_0(text: str) -> None:
    with pytest.raises(ValidationError, match="not a duration above 0"):
        TypeAdapter(PositiveDuration).validate_python(text)


@pytest.mark.parametrize(
    "source",
    [
        "builtin://shapes", "hf://Qwen/Qwen2.5-VL-3B-Instruct", "pvc://models/qwen/3b",
        "file:///srv/models/my model",
    ],
)  # fmt: skip
def test_a_model_may_come_from_each_kind_of_place(source: str) -> None:
    assert TypeAdapter(ModelSource).validate_python(source) == source


@pytest.mark.parametrize(
    "source",
    [
        "shapes", "builtin://", "builtin://Shapes", "hf://Qwen", "hf://a/b/c", "hf://../b",
        "pvc://models", "pvc://models/../etc", "pvc://models/.hidden", "pvc://Models/x", "pvc://a..b/x",
        f"pvc://{'a' * 254}/x",
        "file://relative", "https://host/model", "file:///a\nb", "builtin://shapes\n",
    ],
)  # fmt: skip
def test_a_source_that_is_none_is_refused_with_the_kinds_there_are(source: str) -> None:
    with pytest.raises(ValidationError, match="builtin://NAME, hf://ORG/NAME, pvc://CLAIM/PATH"):
        TypeAdapter(ModelSource).validate_python(source)


@pytest.mark.parametrize(
    ("image", "right"),
    [
        ("triptych-worker:0.1.0", True), ("host.example:5000/team/w@sha256:" + "a" * 64, True),
        ("ghcr.io/a/b", True), ("", False), ("a b", False), ("a:b:c/", False), ("-x", False),
    ],
)  # fmt: skip
def test_an_image_reference_is_checked(image: str, right: bool) -> None:
    adapter: TypeAdapter[str] = TypeAdapter(ImageReference)
    if right:
        assert adapter.validate_python(image) == image
    else:
        with pytest.raises(ValidationError, match="not an image reference"):
            adapter.validate_python(image)


@pytest.mark.parametrize(
    ("network", "right"),
    [
        ("10.0.0.0/8", True), ("fd00::/8", True), ("10.0.0.1/8", False), ("10.0.0.0/33", False),
        ("host", False), ("10.0.0.0", False), ("10.0.0.0/08", False), ("::ffff:a00:0/104", False),
        ("10.0.0.0/255.0.0.0", False), ("fe80::%1/64", False), ("2001:DB8::/32", True),
    ],
)  # fmt: skip
def test_a_network_is_checked(network: str, right: bool) -> None:
    adapter: TypeAdapter[str] = TypeAdapter(Network)
    if right:
        assert adapter.validate_python(network) == network
    else:
        with pytest.raises(ValidationError, match="not a network"):
            adapter.validate_python(network)
