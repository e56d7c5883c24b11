import pytest
from triptych_contract.errors import Unavailable
from triptych_operator.caches.holdings import Holding, holdings

PAGE = """\
# HELP triptych_cache_fingerprint_bytes Bytes
# TYPE triptych_cache_fingerprint_bytes gauge
triptych_cache_fingerprint_bytes{cache="encoder",fingerprint="ab"} 7.0
triptych_cache_fingerprint_bytes{cache="embedding",fingerprint="cd"} 9.0
# TYPE other gauge
other 1
"""


def test_what_a_pod_holds_is_on_its_page() -> None:
    assert list(holdings("p", "encoder", PAGE)) == [
        Holding("p", "encoder", "encoder", "ab", 7),
        Holding("p", "encoder", "embedding", "cd", 9),
    ]


def test_a_page_of_something_else_is_an_error_that_names_the_pod() -> None:
    with pytest.raises(Unavailable, match="pod p "):
        list(holdings("p", "encoder", "<html>not metrics</html>"))
