"""Certificates of the server, by default each signed by an authority of its own whose key is forgotten at once.

So nobody can sign a second certificate with an authority that API servers trust, and renewing a certificate is the same
as rotating the authority: one path, walked every time. Where the stack publishes an authority, its key is given to us.
"""

import datetime as dt
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agents.admission.errors import CertificateError

_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
"""What parts of a text that is PEM raise where they are no certificate or key that this library knows."""
BACKDATED = dt.timedelta(hours=1)
"""Certificates are valid from an hour ago on, for machines whose clock is behind."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key.

    Attributes:
        certificate: PEM, followed by its authority.
        key: PEM.
    """

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def leaf(self) -> x509.Certificate:
        """The server's certificate.

        Raises:
            CertificateError: there is none in the text.
        """
        return _read(self.certificate)[0]

    def private_key(self) -> PrivateKeyTypes:
        """The certificate's key.

        Raises:
            CertificateError: unreadable, or another certificate's.
        """
        try:
            key = serialization.load_pem_private_key(self.key, password=None)
            belongs = key.public_key() == self.leaf.public_key()
        except _UNREADABLE as error:
            raise CertificateError(f"the key can't be used: {error}") from None
        if not belongs:
            raise CertificateError("the key does not belong to the certificate")
        return key

    def check(self, dns_name: str, now: dt.datetime) -> None:
        """Whether it can be served.

        Raises:
            CertificateError: unreadable, for another name, expired, or the key is another certificate's.
        """
        leaf = self.leaf
        self.private_key()
        if dns_name not in _names(leaf):
            raise CertificateError(f"the certificate is not for {dns_name}")
        if leaf.not_valid_after_utc <= now:
            raise CertificateError(f"the certificate expired at {leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}")


def issue(dns_name: str, now: dt.datetime, lifetime: dt.timedelta) -> Pair:
    """Make an authority, and a certificate for a Service's name by it.

    Args:
        dns_name: becomes CN and SAN; at most 64 characters.
        now: the time of day, UTC.
        lifetime: how long both are valid from now on.
    """
    return sign(authority(now, lifetime), dns_name, now, lifetime)


def authority(now: dt.datetime, lifetime: dt.timedelta) -> Pair:
    """Make an authority: its certificate, and the key that signs.

    Args:
        now: the time of day, UTC.
        lifetime: how long it is valid from now on.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own for each: a verifier with old and new in its bundle tries the right one.
    serial = x509.random_serial_number()
    name = _name(f"kai-anywhere-admission-ca-{serial % 10**12:012d}")
    certificate = (
        _builder(name, name, key, now, now + lifetime)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(certificate), _private(key))


def sign(authority: Pair, dns_name: str, now: dt.datetime, lifetime: dt.timedelta) -> Pair:
    """Make a certificate for a Service's name by an authority.

    Args:
        authority: signs it.
        dns_name: becomes CN and SAN; at most 64 characters.
        now: the time of day, UTC.
        lifetime: how long it is valid from now on; it ends with its authority at the latest.

    Raises:
        CertificateError: it is no authority of ours that is still valid.
    """
    issuer, authority_key = authority.leaf, authority.private_key()
    if not _is_authority(issuer) or not isinstance(authority_key, ec.EllipticCurvePrivateKey):
        raise CertificateError("this is no authority with a key on an elliptic curve")
    if issuer.not_valid_after_utc <= now:
        raise CertificateError(f"the authority expired at {issuer.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(dns_name), issuer.subject, key, now, min(now + lifetime, issuer.not_valid_after_utc))
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Pair(_pem(certificate) + _pem(issuer), _private(key))


def renewal_time(pair: Pair) -> dt.datetime:
    """When the next one has to be made: after two thirds of the certificate's life, its backdating left out."""
    leaf = pair.leaf
    begin = min(leaf.not_valid_before_utc + BACKDATED, leaf.not_valid_after_utc)
    return begin + (leaf.not_valid_after_utc - begin) * 2 / 3


def is_young(pair: Pair, now: dt.datetime) -> bool:
    """Whether it is valid, and no other one has to be made yet.

    Args:
        pair: ours.
        now: the time of day, UTC.
    """
    return pair.leaf.not_valid_before_utc <= now < renewal_time(pair)


def bundle(texts: list[bytes], now: dt.datetime) -> bytes:
    """The authorities in some PEM texts, each once and in order, without the expired ones and what can't be read."""
    authorities: dict[bytes, None] = {}
    for text in texts:
        try:
            certificates = _read(text)
        except CertificateError:
            continue
        for certificate in certificates:
            if _is_authority(certificate) and certificate.not_valid_after_utc > now:
                authorities[_pem(certificate)] = None
    return b"".join(authorities)


def _read(text: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError as error:
        raise CertificateError(f"no certificate: {error}") from None


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    except _UNREADABLE as error:
        raise CertificateError(f"the certificate can't be read: {error}") from None
    return extension.value.get_values_for_type(x509.DNSName)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return False


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
