"""The metrics API's own certificates, as OpenSSL judges them."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from triptych_operator.metrics_api.certificates import RENEWED, SERVING, Authority, server_context

NOW = datetime.datetime.now(datetime.UTC)
HOST = "triptych-metrics.triptych-system.svc"


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Both sides of TLS in memory.

    Raises:
        ssl.SSLError: one of them refused the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)


def client_of(authority: bytes) -> ssl.SSLContext:
    """A client that trusts ``authority`` and takes all rules for certificates seriously."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def test_whoever_trusts_the_authority_trusts_the_server_by_its_name_alone() -> None:
    authority, other = Authority(NOW), Authority(NOW)
    server = server_context(authority.issue([HOST], NOW), other.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    handshake(server, client_of(authority.certificate), HOST)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client_of(authority.certificate), "elsewhere.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_of(other.certificate), HOST)


def test_a_renewed_certificate_is_trusted_as_the_one_before() -> None:
    authority = Authority(NOW - datetime.timedelta(days=300))
    server = server_context(authority.issue([HOST], NOW), authority.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    handshake(server, client_of(authority.certificate), HOST)


def test_a_certificate_that_has_ended_is_trusted_no_more() -> None:
    authority = Authority(NOW - 2 * SERVING)
    serving = authority.issue([HOST], NOW - 2 * SERVING)
    server = server_context(serving, authority.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(server, client_of(authority.certificate), HOST)


def test_a_certificate_is_due_well_before_it_ends() -> None:
    serving = Authority(NOW).issue([HOST], NOW)
    assert not serving.due(NOW + SERVING - RENEWED)
    assert serving.due(NOW + SERVING - RENEWED + datetime.timedelta(seconds=1))
    found = x509.load_pem_x509_certificate(serving.certificate)
    assert found.not_valid_after_utc == serving.until.replace(microsecond=0)


def test_without_callers_there_is_no_server() -> None:
    serving = Authority(NOW).issue([HOST], NOW)
    with pytest.raises((ssl.SSLError, ValueError)):
        server_context(serving, "")
