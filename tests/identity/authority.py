"""An authority as cert-manager has it, and volumes with the certificates that it issues, as the kubelet mounts them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.identity.nodes import Node

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
DATA = "..data"


class Authority:
    """Issues certificates.

    Args:
        name: common name.
        above: the authority that has issued this one's certificate; None: it is self-signed.
    """

    def __init__(self, name: str, above: "Authority | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.above = above
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        day = timedelta(days=1)
        made = _begin(self.name, self.key, day).issuer_name(above.name if above else self.name)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = made.sign(above.key if above else self.key, hashes.SHA256())

    @property
    def root(self) -> "Authority":
        return self.above.root if self.above is not None else self

    def issue(
        self, name: str, key: Literal["rsa", "ec"] = "ec", valid_s: float = 3600, host: str = ""
    ) -> dict[str, bytes]:
        """The files of a Secret: key, certificate with its chain, and the root."""
        private: PrivateKey = (
            ec.generate_private_key(ec.SECP256R1()) if key == "ec" else rsa.generate_private_key(65537, 2048)
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = (
            _begin(subject, private, timedelta(seconds=valid_s))
            .issuer_name(self.name)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host or name)]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        chain = [made] + ([self.certificate] if self.above is not None else [])
        return {
            "tls.key": private.private_bytes(  # as cert-manager encodes it by default
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
            "tls.crt": b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain),
            "ca.crt": self.root.certificate.public_bytes(serialization.Encoding.PEM),
        }


def _begin(subject: x509.Name, key: PrivateKey, valid: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def mount(volume: Path, files: dict[str, bytes]) -> Node:
    """Put files into a volume, all at once: what is there is replaced."""
    volume.mkdir(exist_ok=True)
    volume.chmod(0o3777)
    data = volume / f"..{len(list(volume.iterdir()))}_{datetime.now(UTC):%H_%M_%S.%f}"
    data.mkdir()
    for name, content in files.items():
        (data / name).write_bytes(content)
        (data / name).chmod(0o440)
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(Path(DATA) / name)
    following = volume / "..data_tmp"
    following.symlink_to(data.name)
    following.replace(volume / DATA)
    return Node(volume)
