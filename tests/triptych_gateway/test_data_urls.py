import base64

import pytest
from triptych_contract.errors import InvalidRequest, TooLarge
from triptych_gateway.media.data_urls import decode_data_url, is_data_url


def url_of(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 1000])
def test_the_content_comes_back(length):
    assert decode_data_url(url_of(bytes(length)), 1000) == bytes(length)


def test_the_scheme_may_be_written_in_capitals():
    assert is_data_url("DATA:image/png;base64,AA==")
    assert not is_data_url("https://data:80/")


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png,plain", "data:image/png;base64", "data:;base64,A", "data:;base64,A===",
        "data:;base64,AA==AA", "data:;base64,A A=", "data:;base64,ä", "data:" + "x" * 200 + ",",
    ],
)  # fmt: skip
def test_a_malformed_url_is_refused(url):
    with pytest.raises(InvalidRequest, match="data URL"):
        decode_data_url(url, 1000)


def test_content_beyond_the_limit_is_refused_before_it_is_decoded():
    with pytest.raises(TooLarge, match="larger than 999 bytes"):
        decode_data_url(url_of(bytes(1005)), 999)
