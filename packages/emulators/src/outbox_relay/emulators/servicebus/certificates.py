"""A certificate for TLS, made when the emulator starts and signed by its own authority.

Clients must trust the authority. Its key is never written, so nothing else can be signed with it, and its
name constraints (RFC 5280, section 4.2.1.10) limit it to the names of this emulator.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

_VALID_FOR = timedelta(days=365)
_CLOCKS_DIFFER_BY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate in use: `context` for listeners, `authority` as PEM for clients."""

    context: ssl.SSLContext
    authority: bytes


def issue(names: Iterable[str] = LOCAL_NAMES) -> Issued:
    """Make a certificate for hosts, each a DNS name or an IP address; the first is the subject's common name."""
    hosts = [_host(name) for name in names]
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = _named("outbox-relay-emulators, made for this run")
    constraints = x509.NameConstraints([_constraint(host) for host in hosts], None)
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(constraints, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        _builder(authority_name, _named(str(hosts[0].value)), authority_key.public_key(), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Issued(_context(private + leaf.public_bytes(pem)), authority.public_bytes(pem))


def _context(chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # as the service's, from 2025 on
    # The module `ssl` reads keys from files only. The directory is this user's alone.
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "chain.pem"
        path.write_bytes(chain)
        context.load_cert_chain(path)
    return context


def _host(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _constraint(host: x509.DNSName | x509.IPAddress) -> x509.GeneralName:
    return host if isinstance(host, x509.DNSName) else x509.IPAddress(ipaddress.ip_network(str(host.value)))


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    issuer_key: ec.EllipticCurvePublicKey,
    key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER_BY)
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
