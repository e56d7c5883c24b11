"""The certificate that the metrics API serves with, made by and for this process alone.

The key of the authority never leaves the process, so the API server can be told to trust this one
replica and nothing else; the authority outlives the process, the serving certificates are renewed.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVING: Final = datetime.timedelta(days=2)
RENEWED: Final = datetime.timedelta(days=1)  # before a serving certificate ends
_AUTHORITY: Final = datetime.timedelta(days=3650)
_SKEW: Final = datetime.timedelta(minutes=10)  # that the API server's clock may be behind ours


@dataclass(frozen=True, slots=True)
class Serving:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes
    until: datetime.datetime  # when it ends

    def due(self, now: datetime.datetime) -> bool:
        """Whether it is time for the next one."""
        return now > self.until - RENEWED


class Authority:
    """A certificate authority that lives as long as this process."""

    def __init__(self, now: datetime.datetime) -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "triptych-metrics-ca")])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(self._name, self._key, now, _AUTHORITY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate: Final = _pem(certificate)  # what a caller is to trust

    def issue(self, hosts: Sequence[str], now: datetime.datetime) -> Serving:
        """A certificate of a server that is called by any of ``hosts``, which are DNS names."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "triptych-metrics")])
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        certificate = (
            self._builder(name, key, now, SERVING)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Serving(_pem(certificate), secret, now + SERVING)

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        now: datetime.datetime,
        lasting: datetime.timedelta,
    ) -> x509.CertificateBuilder:
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        public = key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + lasting)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(ours, critical=False)
        )


def server_context(serving: Serving, callers: str) -> ssl.SSLContext:
    """TLS as ``serving``, for clients alone whose certificate the authorities ``callers`` signed.

    Args:
        callers: certificates of authorities in PEM.

    Raises:
        ssl.SSLError: ``callers`` holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=callers)
    with tempfile.NamedTemporaryFile() as pair:  # ssl reads certificates from files alone
        pair.write(serving.certificate + serving.key)
        pair.flush()
        context.load_cert_chain(pair.name)
    return context


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
