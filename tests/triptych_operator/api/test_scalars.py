import pytest
from pydantic import TypeAdapter, ValidationError
from triptych_operator.api.scalars import (
    Duration,
    ImageReference,
    ModelSource,
    Network,
    PositiveDuration,
    parse_seconds,
)


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
