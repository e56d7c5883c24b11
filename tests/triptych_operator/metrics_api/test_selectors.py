"""Label selectors choose what Kubernetes has them choose."""

from __future__ import annotations

import pytest
from triptych_contract.errors import InvalidRequest
from triptych_operator.metrics_api.selectors import parse_selector

LABELS = {"app.kubernetes.io/instance": "shapes", "tier": "encoder", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        (" ", True),
        ("app.kubernetes.io/instance=shapes", True),
        ("app.kubernetes.io/instance==shapes", True),
        ("app.kubernetes.io/instance=other", False),
        ("tier=encoder,app.kubernetes.io/instance=shapes", True),
        ("tier=encoder,app.kubernetes.io/instance=other", False),
        ("tier!=encoder", False),
        ("tier != decode", True),
        ("absent!=x", True),
        ("absent=x", False),
        ("empty=", True),
        ("tier=", False),
        ("tier in (encoder,decode)", True),
        ("tier in ( decode , prefill )", False),
        ("tier notin (encoder)", False),
        ("absent notin (x)", True),
        ("tier in (encoder),app.kubernetes.io/instance in (shapes)", True),
        ("empty in ()", True),
        ("tier", True),
        ("absent", False),
        ("!absent", True),
        ("! tier", False),
    ],
)
def test_a_selector_matches(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    [
        "=x",
        "a=b=c",
        "a in b",
        "a in (b",
        "a in (b c)",
        "a,,b",
        ",",
        "a=b c",
        "-a=b",
        "a>1",
        "a=b" + "x" * 5000,
        "a=" + "(" * 4000,
    ],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="label selector"):
        parse_selector(text)
