"""Certificates and keys of the control plane: one authority, made once per simulator folder."""

import datetime as dt
import ipaddress
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = dt.timedelta(days=3650)
"""Long enough never to be met: a simulator is thrown away."""

SERVICE_IP = ipaddress.IPv4Address("10.96.0.1")
"""The first address of the service range is always the API server's own Service."""

SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class Identity:
    """A client of the API server or of etcd: the certificate's common name is the user, organizations are groups."""

    file: str
    user: str
    groups: tuple[str, ...] = ()


ADMINISTRATOR = Identity("admin", "kai-anywhere-simulator", ("system:masters",))
CONTROLLER_MANAGER = Identity("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER = Identity("kube-scheduler", "system:kube-scheduler")
ETCD_CLIENT = Identity("etcd-client", "kube-apiserver")
IDENTITIES = (ADMINISTRATOR, CONTROLLER_MANAGER, SCHEDULER, ETCD_CLIENT)


@dataclass(frozen=True)
class Pki:
    """The files of one folder's authority."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate that everybody trusts."""
        return self.folder / "ca.crt"

    @property
    def server(self) -> tuple[Path, Path]:
        """Certificate and key that etcd and the API server present."""
        return self.folder / "server.crt", self.folder / "server.key"

    @property
    def service_account(self) -> tuple[Path, Path]:
        """Public and private key of service-account tokens."""
        return self.folder / "service-account.pub", self.folder / "service-account.key"

    def client(self, identity: Identity) -> tuple[Path, Path]:
        """Certificate and key of a client."""
        return self.folder / f"{identity.file}.crt", self.folder / f"{identity.file}.key"


def ensure(folder: Path) -> Pki:
    """Make the files in `folder` unless they are there; a run killed in between leaves nothing behind in `folder`.

    Raises:
        OSError: the folder can't be written.
    """
    pki = Pki(folder)
    if not pki.authority.is_file():
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            _make(Pki(temporary))
            temporary.replace(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return pki


def _make(pki: Pki) -> None:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("kai-anywhere-simulator-ca")
    authority = _sign(
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True),
        authority_key,
    )
    _write(pki.authority, _pem(authority))

    def issue(files: tuple[Path, Path], name: x509.Name, usage: x509.ObjectIdentifier, *, server: bool = False) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name, authority_name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )
        if server:
            addresses = (ipaddress.IPv4Address("127.0.0.1"), SERVICE_IP)
            builder = builder.add_extension(
                x509.SubjectAlternativeName([*map(x509.DNSName, SERVER_NAMES), *map(x509.IPAddress, addresses)]),
                critical=False,
            )
        certificate, private = files
        _write(certificate, _pem(_sign(builder, authority_key)))
        _write(private, _private_pem(key))

    issue(pki.server, _name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, server=True)
    for identity in IDENTITIES:
        issue(pki.client(identity), _name(identity.user, identity.groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    service_account_key = ec.generate_private_key(ec.SECP256R1())
    public, private = pki.service_account
    _write(
        public,
        service_account_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )
    _write(private, _private_pem(service_account_key))


def _name(common_name: str, organizations: tuple[str, ...] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A machine whose clock is being set back a little right after the start still accepts the certificates.
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
