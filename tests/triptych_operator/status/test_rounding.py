import pytest
from triptych_operator.status.rounding import rounded


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.48219, "0.482"),
        (12.54, "12.5"),
        (20480.0, "20500"),
        (100.0, "100"),
        (1e-9, "0"),
        (123456789.0, "123000000"),
    ],
)
def test_values_have_three_digits(value: float, text: str) -> None:
    assert rounded(value) == text
