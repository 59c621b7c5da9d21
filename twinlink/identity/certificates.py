"""Self-signed X.509 certificates (RFC 5280), which peers pin; by the package ``cryptography``."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ..errors import ConfigurationError, TransportMissing

try:
    import cryptography
    from cryptography import x509
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
    except (ValueError, x509.ExtensionNotFound):
        raise ConfigurationError(f"the certificate of {name} cannot be read: copy the public line again") from None
    if constraints.ca:  # drivers would take what it issues for that of any node
        raise ConfigurationError(f"the certificate of {name} is one of an authority, which no identity has")
    names = [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [name]:
        raise ConfigurationError(f"the certificate of {name} has another common name: {', '.join(map(str, names))}")


def expiry(der: bytes) -> datetime:
    """When a certificate expires, UTC."""
    return x509.load_der_x509_certificate(der).not_valid_after_utc


def hosts(der: bytes) -> list[str]:
    """The alternative names of a certificate that `self_signed` has made."""
    names = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def to_pem(der: bytes) -> bytes:
    """A certificate in the form that drivers read."""
    return x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)


def leaf(pem: bytes, where: str) -> bytes:
    """The first certificate of a PEM file, as DER.  Raises ConfigurationError."""
    try:
        return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    except ValueError:
        raise ConfigurationError(f"{where} is no certificate in PEM") from None


def is_pair(pem: bytes, private: bytes) -> bool:
    """Whether the private key belongs to the certificate."""
    try:
        key = serialization.load_pem_private_key(private, None)
        certificate = x509.load_pem_x509_certificate(pem)
    except (ValueError, TypeError):
        return False
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)
