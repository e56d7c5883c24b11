import pytest
from triptych_contract.errors import InvalidRequest
from triptych_gateway.media.urls import parse_target, redirected

LOOPBACK = [
    "https://127.0.0.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/",
    "https://127.1/", "https://0x7f.1/", "https://127.0.0.1./", "https://\uff11\uff12\uff17.0.0.1/",
]  # fmt: skip


@pytest.mark.parametrize("url", LOOPBACK)
def test_every_spelling_of_an_address_is_read_as_that_address(url):
    assert str(parse_target(url).literal) == "127.0.0.1"


def test_a_mapped_address_keeps_what_it_embeds():
    assert str(parse_target("https://[::ffff:127.0.0.1]/").literal.ipv4_mapped) == "127.0.0.1"


def test_a_host_keeps_its_port_and_loses_its_case():
    target = parse_target("https://Example.COM:8443/a?b#c")
    assert (target.host, target.port, target.secure, target.literal) == (
        "example.com", 8443, True, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://good.example\\@127.0.0.1/", "backslash"),
        ("https:\\\\127.0.0.1/", "backslash"),
        ("https://good.example /", "blank"),
        ("https://good\t.example/", "control"),
        ("https://user:pass@good.example/", "user name"),
        ("https://good.example@127.0.0.1/", "user name"),
        ("file:///etc/passwd", "must start with https"),
        ("ftp://good.example/", "must start with https"),
        ("gopher://good.example/", "must start with https"),
        ("picture.png", "not a valid absolute URL"),
        ("https://", "not a valid absolute URL"),
        ("https://[::1", "not a valid absolute URL"),
        ("https://exa%00mple.com/", "not a valid absolute URL"),
        ("https://good.example/" + "a" * 9000, "longer than"),
    ],
)
def test_urls_that_parsers_could_read_differently_are_refused(url, problem):
    with pytest.raises(InvalidRequest, match=problem):
        parse_target(url)


def test_a_relative_redirect_stays_on_its_host():
    assert redirected(parse_target("https://a.example/x/y"), "../z").href == "https://a.example/z"


def test_a_redirect_to_another_scheme_is_refused():
    with pytest.raises(InvalidRequest, match="must start with https"):
        redirected(parse_target("https://a.example/"), "file:///etc/passwd")
