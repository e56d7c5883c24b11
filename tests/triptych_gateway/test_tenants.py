import pytest
from starlette.datastructures import Headers
from triptych_contract.errors import InvalidRequest
from triptych_contract.fingerprints import NO_TENANT
from triptych_gateway.api.tenants import salt_of

HEADER = "x-tenant"


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode()) for name, value in pairs])


def key(value: str) -> Headers:
    return headers(("authorization", value))


def test_each_api_key_is_a_tenant():
    salts = {salt_of(key(f"Bearer {name}"), "") for name in ("sk-1", "sk-2", "SK-1")}
    assert len(salts) == 3
    assert NO_TENANT not in salts
    assert all(len(salt) == 32 for salt in salts)


def test_how_the_scheme_is_written_does_not_matter():
    assert salt_of(key("bearer  sk-1"), "") == salt_of(key("Bearer sk-1"), "")
    assert salt_of(key("Basic sk-1"), "") != salt_of(key("Bearer sk-1"), "")


def test_nobody_in_particular_is_one_tenant():
    assert salt_of(headers(), "") == NO_TENANT
    assert salt_of(headers(), HEADER) == NO_TENANT


def test_a_header_counts_only_where_the_service_allows_it():
    both = headers(("authorization", "Bearer sk-1"), (HEADER, "acme"))
    assert salt_of(both, "") == salt_of(key("Bearer sk-1"), "")
    assert salt_of(both, HEADER) == salt_of(headers((HEADER, "acme")), HEADER)


def test_a_key_cannot_pass_for_a_header_nor_a_header_for_a_key():
    named = salt_of(headers((HEADER, "key bearer sk-1")), HEADER)
    assert named != salt_of(key("Bearer sk-1"), HEADER)
    assert salt_of(headers((HEADER, "sk-1")), HEADER) != salt_of(key("Bearer sk-1"), HEADER)


@pytest.mark.parametrize("name", [HEADER, "authorization"])
def test_a_name_that_comes_twice_could_be_anybody_s(name):
    with pytest.raises(InvalidRequest, match="send it once"):
        salt_of(headers((name, "a"), (name, "b")), HEADER)
