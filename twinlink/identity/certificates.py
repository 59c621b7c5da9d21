"""X.509 certificates (RFC 5280), self-signed or issued by an authority; with the package ``cryptography``."""

import base64
import functools
import hashlib
import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ..errors import ConfigurationError, TransportMissing

try:
    import cryptography
    from cryptography import x509
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as error:
    raise TransportMissing(
        f"an identity needs the package cryptography ({error}); install it with: pip install 'twinlink[security]'"
    ) from error

if not hasattr(x509.Certificate, "not_valid_after_utc"):
    raise TransportMissing(
        f"an identity needs the package cryptography from 42 on, and this Python finds {cryptography.__version__}; "
        "install it with: pip install 'twinlink[security]'"
    )

BACKDATED = timedelta(minutes=5)  # the peer's clock may be behind
UNREADABLE = (  # what the package raises
    ValueError, TypeError, UnsupportedAlgorithm, InternalError, x509.InvalidVersion, x509.ExtensionNotFound,
    x509.DuplicateExtension, x509.UnsupportedGeneralNameType,
)  # fmt: skip
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def self_signed(name: str, hosts: Sequence[str], expiry: datetime) -> tuple[bytes, bytes]:
    """Make a key pair (EC P-256) and its certificate: PEM of the private key, PEM of the certificate.

    Args:
        name: the common name, and one of the alternative names.
        hosts: names and addresses under which peers connect to this node; loopback is always among them.
        expiry: UTC.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = list(dict.fromkeys([name, *hosts, *LOOPBACK]))
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(datetime.now(UTC), expiry) - BACKDATED)
        .not_valid_after(expiry)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        # OpenSSL tells two certificates of one name apart by these, while the keys rotate.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(one) for one in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def check(der: bytes, name: str) -> None:
    """Raises ConfigurationError if this is no certificate of this name."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        subject, _ = certificate.subject, certificate.not_valid_after_utc  # what is used is parsed only when asked for
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except UNREADABLE:
        raise ConfigurationError(f"the certificate of {name} cannot be read: copy the public line again") from None
    if constraints.ca:  # drivers would take what it issues for that of any node
        raise ConfigurationError(f"the certificate of {name} is one of an authority, which no identity has")
    names = [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [name]:
        raise ConfigurationError(f"the certificate of {name} has another common name: {', '.join(map(str, names))}")


def check_issued(der: bytes, where: str) -> str:
    """The common name of a certificate that an authority has issued to a node.  Raises ConfigurationError."""
    found = issued(der)
    if found is None:
        raise ConfigurationError(
            f"{where} is no certificate of a node: it needs one common name (the commonName of cert-manager's "
            "Certificate), and may be neither self-signed nor that of an authority"
        )
    return found.name


class Issued(NamedTuple):
    """What a certificate of an authority says: common name, its host's names and addresses, when it expires (UTC)."""

    name: str
    hosts: frozenset[str]
    expiry: datetime


@functools.lru_cache(maxsize=1024)
def issued(der: bytes) -> Issued | None:
    """What a certificate says; None where it is self-signed, an authority's or without one common name."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if len(names) != 1 or certificate.issuer == certificate.subject or _is_authority(certificate):
            return None
        return Issued(str(names[0].value), frozenset(hosts(der)), certificate.not_valid_after_utc)
    except UNREADABLE:
        return None


def authorities(pem: bytes, where: str) -> bytes:
    """The certificates of authorities in a file, as PEM.  Raises ConfigurationError if one is not an authority's."""
    try:
        found = x509.load_pem_x509_certificates(pem)
        wrong = [one.subject.rfc4514_string() for one in found if not _is_authority(one)]
    except UNREADABLE:
        raise ConfigurationError(f"{where} cannot be read as certificates in PEM: copy it again") from None
    if wrong:
        raise ConfigurationError(
            f"{where} has the certificate of {wrong[0]}, which is no authority: leave only those of authorities"
        )
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in found)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def expiry(der: bytes) -> datetime:
    """When a certificate expires, UTC."""
    return x509.load_der_x509_certificate(der).not_valid_after_utc


def fingerprint(octets: bytes) -> str:
    """In the form that SSH has, to be compared by people."""
    return f"SHA256:{base64.b64encode(hashlib.sha256(octets).digest()).decode().rstrip('=')}"


def hosts(der: bytes) -> list[str]:
    """The alternative names of a certificate."""
    try:
        extensions = x509.load_der_x509_certificate(der).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def to_pem(der: bytes) -> bytes:
    """A certificate in the form that drivers read."""
    return x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)


def leaf(pem: bytes, where: str) -> bytes:
    """The first certificate of a PEM file, as DER.  Raises ConfigurationError."""
    try:
        return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    except UNREADABLE:
        raise ConfigurationError(f"{where} is no certificate in PEM") from None


def is_pair(pem: bytes, private: bytes) -> bool:
    """Whether the private key belongs to the certificate."""
    try:
        key = serialization.load_pem_private_key(private, None)
        certificate = x509.load_pem_x509_certificate(pem)
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)
    except UNREADABLE:
        return False
