"""A certificate authority and a server certificate for 127.0.0.1, made anew for each run."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_DAY = datetime.timedelta(days=1)


def make(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """The authority's file in PEM, and what a server on 127.0.0.1 needs."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = _name("test authority"), _name("127.0.0.1")
    ca = (
        _builder(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        _builder(name, ca_name, key)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    ca_file, pair = directory / "ca.pem", directory / "server.pem"
    pem = serialization.Encoding.PEM
    ca_file.write_bytes(ca.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pair.write_bytes(private + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return ca_file, context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )
