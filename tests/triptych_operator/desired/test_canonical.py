from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triptych_operator.api.quantities import parse_quantity
from triptych_operator.desired.canonical import canonical, pod_spec, resource_list

POWERS = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTP", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTP", start=1)},
    "": Decimal(1),
}


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ("0", "0"), ("0.0", "0"), ("0Gi", "0"), ("1", "1"), ("007", "7"), ("1000m", "1"),
        ("0.5", "500m"), ("1.5", "1500m"), ("100", "100"), ("1000", "1k"), ("1500", "1500"),
        ("1e3", "1k"), ("129e6", "129M"), ("2E-1", "200m"), ("1000000k", "1G"), ("0.1u", "100n"),
        ("1024", "1024"), ("1024Ki", "1Mi"), ("1.5Gi", "1536Mi"), ("512Ki", "512Ki"),
        ("0.5Ki", "512"), ("1.0001Ki", "1024102400u"), ("1024Ti", "1Pi"), ("999999Ti", "999999Ti"),
        (2, "2"), (0.5, "500m"), (1e-7, "100n"), ("x", "x"), ("1Zi", "1Zi"), ("-1", "-1"),
    ],
)  # fmt: skip
def test_a_quantity_has_the_form_in_which_the_server_keeps_it(
    given_: str | float, kept: str
) -> None:
    assert canonical(given_) == kept


@given(
    st.decimals(0, 999_999, places=9),
    st.sampled_from(["", "n", "u", "m", "k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti", "e2", "E-3"]),
)
def test_the_form_keeps_the_value_and_is_its_own_form(number: Decimal, suffix: str) -> None:
    quantity = f"{number:f}{suffix}"
    kept = str(canonical(quantity))
    number_kept = Decimal(kept.rstrip("numkKMGTPi"))
    value = number_kept * POWERS[kept.lstrip("0123456789")]
    assert 0 <= value - parse_quantity(quantity) < Decimal("1e-9")
    assert canonical(kept) == kept


def test_a_container_is_given_at_least_a_thousandth() -> None:
    assert resource_list({"cpu": "100n", "memory": 0.0001, "a.example/b": 2}) == {
        "cpu": "1m", "memory": "1m", "a.example/b": "2"
    }  # fmt: skip


def test_a_pod_is_written_as_the_server_keeps_it() -> None:
    given_ = {
        "hostNetwork": False,
        "hostUsers": False,
        "nodeSelector": {"value": ""},
        "affinity": None,
        "volumes": [{"name": "shm", "emptyDir": {"medium": "", "sizeLimit": "1024Mi"}}],
        "containers": [
            {
                "name": "a",
                "tty": False,
                "env": [{"name": "A", "value": ""}, {"name": "B", "value": "b"}],
                "resources": {"limits": {"cpu": 1}},
                "securityContext": {"privileged": False, "runAsUser": None},
            },
            "oops",
        ],
    }
    assert pod_spec(given_) == {
        "hostUsers": False,
        "nodeSelector": {"value": ""},
        "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [
            {
                "name": "a",
                "env": [{"name": "A"}, {"name": "B", "value": "b"}],
                "resources": {"limits": {"cpu": "1"}},
                "securityContext": {"privileged": False},
            },
            "oops",
        ],
    }
