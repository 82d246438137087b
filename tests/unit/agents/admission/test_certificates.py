"""Certificates, what becomes of them in the Secret, and the exchange in a live TLS context."""

import asyncio
import base64
import datetime as dt
import itertools
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID
from typing_extensions import override

from agents.admission.certificates import custody
from agents.admission.certificates import keeper as keeper_module
from agents.admission.certificates import pairs as certificates
from agents.admission.certificates.custody import Custody, Rules
from agents.admission.certificates.keeper import Keeper, SigningKeeper, keeper_of
from agents.admission.certificates.pairs import Pair
from agents.admission.certificates.tls import LiveTls
from agents.admission.errors import ApiError, CertificateError
from agents.admission.kubernetes import ApiServer
from agents.admission.settings import VERSION, MountedCertificate, OwnCertificate, Settings, SignedCertificate

NAME = "kai-anywhere-admission.kai-anywhere.svc"
NOW = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)
LIFETIME = dt.timedelta(minutes=2)
RULES = Rules(NAME, LIFETIME, dt.timedelta(seconds=10))


def issue(now: dt.datetime = NOW) -> Pair:
    return certificates.issue(NAME, now, LIFETIME)


def foreign(extension: x509.ObjectIdentifier) -> bytes:
    """A certificate with bytes in an extension that are none of its kind."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + LIFETIME)
        .add_extension(x509.UnrecognizedExtension(extension, b"nonsense"), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    return pem + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def handshake(tls: LiveTls, authorities: bytes, name: str = NAME) -> bytes | None:
    """The certificate that a client sees that trusts these authorities."""
    client = ssl.create_default_context(cadata=authorities.decode("ascii"))
    ours, theirs = socket.socketpair()
    failures: list[Exception] = []

    def serve() -> None:
        try:
            with tls.context.wrap_socket(theirs, server_side=True) as accepted:
                accepted.recv(1)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as connection:
            return connection.getpeercert(binary_form=True)
    finally:
        ours.close()
        thread.join()


class TestIssuing:
    """One certificate and the authority that signed nothing else."""

    def test_common_name_and_alternative_name_are_the_services(self) -> None:
        leaf = issue().leaf
        assert leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == NAME
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [NAME]
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca

    def test_the_key_of_the_authority_is_nowhere(self) -> None:
        pair = issue()
        assert pair.key.count(b"PRIVATE KEY-----") == 2, "begin and end of the server's own key"
        assert pair.certificate.count(b"BEGIN CERTIFICATE") == 2
        assert b"PRIVATE" not in pair.certificate

    def test_a_pair_does_not_print_its_key(self) -> None:
        assert "PRIVATE" not in repr(issue())

    def test_a_client_that_trusts_the_authority_accepts_it(self) -> None:
        pair = issue(dt.datetime.now(dt.UTC))
        tls = LiveTls()
        tls.load(pair)
        authorities = certificates.bundle([pair.certificate], dt.datetime.now(dt.UTC))
        assert handshake(tls, authorities) == pair.leaf.public_bytes(serialization.Encoding.DER)

    def test_a_client_that_trusts_another_authority_refuses_it(self) -> None:
        now = dt.datetime.now(dt.UTC)
        tls = LiveTls()
        tls.load(issue(now))
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(tls, certificates.bundle([issue(now).certificate], now))

    def test_renewal_is_due_after_two_thirds(self) -> None:
        assert certificates.renewal_time(issue()) == NOW + LIFETIME * 2 / 3


class TestChecking:
    """What is never served."""

    def test_a_good_pair_passes(self) -> None:
        issue().check(NAME, NOW)

    @pytest.mark.parametrize(
        ("pair", "says"),
        [
            (Pair(issue().certificate, issue().key), "does not belong"),
            (Pair(b"nonsense", issue().key), "no certificate"),
            (Pair(issue().certificate, b"nonsense"), "the key can't be used"),
            (certificates.issue("another.name.svc", NOW, LIFETIME), f"not for {NAME}"),
            (issue(NOW - 2 * LIFETIME), "expired at 2026-11-22T11:58:00Z"),
        ],
    )
    def test_a_bad_pair_is_refused_with_the_reason(self, pair: Pair, says: str) -> None:
        with pytest.raises(CertificateError, match=says):
            pair.check(NAME, NOW)


class TestTheLiveContext:
    """Exchange without a listener's restart."""

    def test_a_new_pair_is_for_new_handshakes(self) -> None:
        now = dt.datetime.now(dt.UTC)
        pairs = [issue(now), issue(now)]
        both = certificates.bundle([pair.certificate for pair in pairs], now)
        tls = LiveTls()
        seen = []
        for pair in pairs:
            tls.load(pair)
            seen.append(handshake(tls, both))
        assert len(set(seen)) == 2

    def test_a_python_built_for_an_old_glibc_serves_one_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        pair = issue(now := dt.datetime.now(dt.UTC))
        tls = LiveTls()
        tls.load(pair)
        assert handshake(tls, certificates.bundle([pair.certificate], now)) is not None

    def test_a_key_that_does_not_fit_leaves_the_served_pair_in_place(self) -> None:
        now = dt.datetime.now(dt.UTC)
        good = issue(now)
        tls = LiveTls()
        tls.load(good)
        with pytest.raises(CertificateError):
            tls.load(Pair(issue(now).certificate, good.key))
        assert tls.served == good
        assert handshake(tls, certificates.bundle([good.certificate], now))


class TestTheSecret:
    """The state machine, with a clock of our own."""

    def test_an_empty_secret_gets_a_pair_that_is_served_at_once(self) -> None:
        held = custody.advance(custody.read(None), NOW, RULES, None)
        assert held.current is not None
        assert held.next is None
        assert held.authorities == certificates.bundle([held.current.certificate], NOW)

    def test_what_is_written_is_read_again(self) -> None:
        held = Custody(issue(), issue(), b"bundle")
        assert custody.read(custody.write(held)) == held

    def test_nothing_is_due_means_the_same_content(self) -> None:
        held = custody.advance(Custody(), NOW, RULES, None)
        assert custody.advance(held, NOW + LIFETIME / 2, RULES, None) is held

    def test_the_next_authority_is_published_beside_the_old_one_before_its_pair_is_served(self) -> None:
        first = custody.advance(Custody(), NOW, RULES, None)
        due = NOW + LIFETIME * 0.7
        second = custody.advance(first, due, RULES, None)
        assert (second.current, second.next is None) == (first.current, False)
        assert second.next is not None
        assert first.current is not None
        both = [second.next.certificate, first.current.certificate]
        assert second.authorities == certificates.bundle(both, due)
        for published in (None, dt.timedelta(seconds=9)):
            assert custody.advance(second, due, RULES, published) is second, "API servers may not know it yet"
        third = custody.advance(second, due, RULES, dt.timedelta(seconds=10))
        assert (third.current, third.next) == (second.next, None)
        assert third.authorities == second.authorities, "another replica may still serve the old pair"
        assert certificates.bundle([third.authorities], NOW + LIFETIME) == certificates.bundle(
            [second.next.certificate], NOW + LIFETIME
        )

    def test_at_every_moment_each_pair_that_may_be_served_is_trusted(self) -> None:
        held = Custody()
        published_since: tuple[Pair, dt.datetime] | None = None
        served: list[Pair] = []
        changes = 0
        for second in range(0, 600, 2):
            now = NOW + dt.timedelta(seconds=second)
            waited = now - published_since[1] if published_since and published_since[0] == held.next else None
            before, held = held, custody.advance(held, now, RULES, waited)
            changes += held != before
            if held.next is not None and (published_since is None or published_since[0] != held.next):
                published_since = held.next, now
            assert held.current is not None
            held.current.check(NAME, now)
            # A replica may be one look behind.
            may_serve = [held.current, *([before.current] if before.current else [])]
            for pair in may_serve:
                authority = certificates.bundle([pair.certificate], now)
                assert authority
                assert authority in held.authorities
            if not served or served[-1] != held.current:
                served.append(held.current)
        assert len(served) >= 6, "rotations in ten minutes"
        assert changes < 40
        assert held.authorities.count(b"BEGIN CERTIFICATE") <= 3, "expired authorities leave the bundle"
        for old, new in itertools.pairwise(served):
            assert old.certificate != new.certificate

    @pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
    def test_a_damaged_secret_heals(self, name: str) -> None:
        good = custody.advance(Custody(), NOW, RULES, None)
        for damage in ("", "!!!", "bm9uc2Vuc2U="):
            held = custody.advance(custody.read(custody.write(good) | {name: damage}), NOW, RULES, None)
            assert held.current is not None
            held.current.check(NAME, NOW)
            assert certificates.bundle([held.current.certificate], NOW) in held.authorities

    @pytest.mark.parametrize("extension", [ExtensionOID.SUBJECT_ALTERNATIVE_NAME, ExtensionOID.BASIC_CONSTRAINTS])
    def test_a_secret_with_a_certificate_that_nobody_can_read_heals(self, extension: x509.ObjectIdentifier) -> None:
        text = base64.b64encode(foreign(extension)).decode()
        held = custody.advance(custody.read(dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), text)), NOW, RULES, None)
        assert held.current is not None
        held.current.check(NAME, NOW)

    def test_a_secret_with_a_key_of_an_unknown_curve_heals(self) -> None:
        good = custody.advance(Custody(), NOW, RULES, None)
        assert good.current is not None
        der = good.current.private_key().private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # The name of P-256 becomes that of prime192v2.
        unknown = base64.b64encode(
            der.replace(b"\x2a\x86\x48\xce\x3d\x03\x01\x07", b"\x2a\x86\x48\xce\x3d\x03\x01\x02")
        )
        pem = b"-----BEGIN PRIVATE KEY-----\n" + unknown + b"\n-----END PRIVATE KEY-----\n"
        held = custody.advance(Custody(Pair(good.current.certificate, pem)), NOW, RULES, None)
        assert held.current is not None
        held.current.check(NAME, NOW)

    def test_an_expired_pair_is_replaced_at_once_by_one_that_waits(self) -> None:
        coming = issue()
        held = custody.advance(Custody(issue(NOW - 2 * LIFETIME), coming, b""), NOW, RULES, None)
        assert (held.current, held.next) == (coming, None)

    def test_a_pair_of_a_clock_that_was_ahead_is_replaced_at_once(self) -> None:
        ahead = issue(NOW + dt.timedelta(days=30))
        held = custody.advance(Custody(ahead, None, b""), NOW, RULES, None)
        assert held.current is not None
        assert held.current.leaf.not_valid_before_utc <= NOW

    def test_a_replica_whose_clock_is_wrong_makes_certificates_by_the_api_servers(self) -> None:
        replica, tls = _replica(_Cluster(NOW))
        asyncio.run(replica.look())
        assert tls.served is not None
        tls.served.check(NAME, NOW)
        assert tls.served.leaf.not_valid_after_utc == NOW + LIFETIME

    def test_a_configuration_that_is_gone_holds_up_no_rotation_and_no_new_replica(self) -> None:
        there, api = f"{_WEBHOOKS}/there", _Cluster(NOW)
        api.objects[there] = {"metadata": {"resourceVersion": "1"}, "webhooks": [{"clientConfig": {}}]}
        replica, tls = _replica(api, "gone", "there")
        asyncio.run(replica.look())
        assert tls.served is not None
        assert api.bundles == {there: 1}
        assert not replica.trusted, "an installation waits for all of them"
        api.objects[there]["webhooks"][0]["clientConfig"]["caBundle"] = api.objects[_SECRET]["data"]["ca.crt"]
        another, _ = _replica(api, "gone", "there")
        asyncio.run(another.look())
        assert another.trusted
        api.time = NOW + LIFETIME * 0.7
        asyncio.run(replica.look())
        assert "next.crt" in api.objects[_SECRET]["data"]
        assert api.bundles == {there: 2}, "both authorities are published"

    def test_without_any_configuration_a_new_replica_waits(self) -> None:
        replica, _ = _replica(_Cluster(NOW), "gone")
        asyncio.run(replica.look())
        assert not replica.trusted

    def test_a_mounted_certificate_is_judged_by_the_api_servers_clock_and_without_what_is_gone(
        self, tmp_path: Path
    ) -> None:
        pair, api, tls = issue(), _Cluster(NOW), LiveTls()
        replica = _mounted(api, tls, tmp_path, pair)
        asyncio.run(replica.look())
        assert (tls.served, replica.trusted) == (pair, True), "by our clock it has expired"

    def test_an_api_server_that_is_away_takes_no_replica_with_a_mounted_certificate_out_of_service(
        self, tmp_path: Path
    ) -> None:
        api, tls, renewed = _Cluster(NOW), LiveTls(), issue()
        replica = _mounted(api, tls, tmp_path, issue())
        asyncio.run(replica.look())
        api.away = True
        _mount(tmp_path, renewed)
        asyncio.run(replica.look())
        assert (tls.served, replica.trusted) == (renewed, True)
        another = _mounted(api, LiveTls(), tmp_path, renewed)
        asyncio.run(another.look())
        assert not another.trusted, "it has not seen caBundle"


_SECRET = "/api/v1/namespaces/kai-anywhere/secrets/a"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def _replica(api: ApiServer, *configurations: str) -> tuple[Keeper, LiveTls]:
    own = OwnCertificate(secret="a", lifetime_seconds=LIFETIME.total_seconds(), propagation_seconds=10)
    settings, tls = Settings(VERSION, "kai-anywhere", "kai-anywhere-admission", configurations, own, {}), LiveTls()
    return keeper_of(settings, api, tls), tls


def _mounted(api: "_Cluster", tls: LiveTls, folder: Path, pair: Pair) -> Keeper:
    """The keeper of a pair in mounted files, with one of two configurations."""
    _mount(folder, pair)
    api.objects[f"{_WEBHOOKS}/there"] = {"webhooks": [{"clientConfig": {"caBundle": "YQ=="}}]}
    mounted = MountedCertificate(folder=str(folder))
    settings = Settings(VERSION, "kai-anywhere", "kai-anywhere-admission", ("gone", "there"), mounted, {})
    return keeper_of(settings, api, tls)


def _mount(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


class _Cluster(ApiServer):
    """An API server with an empty Secret and a clock of its own."""

    def __init__(self, now: dt.datetime) -> None:
        self.time = now
        self.away = False
        self.objects: dict[str, dict[str, Any]] = {_SECRET: {}}
        self.bundles: dict[str, int] = {}
        """How many authorities were published last, by configuration."""

    @property
    @override
    def now(self) -> dt.datetime:
        return self.time

    @override
    async def get(self, path: str) -> dict[str, Any]:
        if self.away:
            raise ApiError(0, "connection refused")
        if path not in self.objects:
            raise ApiError(404, "not found")
        return self.objects[path]

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.objects[path] = dict(body)
        return self.objects[path]

    @override
    async def patch(self, path: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        self.bundles[path] = base64.b64decode(operations[1]["value"]).count(b"BEGIN CERTIFICATE")
        return {}


class TestSigning:
    """An authority of the stack's, mounted; each replica signs for itself."""

    @staticmethod
    def keeper(folder: Path, tls: LiveTls) -> SigningKeeper:
        signed = SignedCertificate(folder=str(folder), lifetime_seconds=LIFETIME.total_seconds())
        settings = Settings(VERSION, "kai-anywhere", "kai-anywhere-admission", ("a",), signed, {})
        return SigningKeeper(settings, signed, tls)

    @staticmethod
    def mounted(folder: Path, authority: Pair) -> bytes:
        (folder / "ca.crt").write_bytes(authority.certificate)
        (folder / "ca.key").write_bytes(authority.key)
        return authority.certificate

    def test_what_it_signs_is_trusted_by_who_trusts_the_authority_and_kept_until_it_has_to_be_renewed(
        self, tmp_path: Path
    ) -> None:
        bundle = self.mounted(tmp_path, certificates.authority(dt.datetime.now(dt.UTC), dt.timedelta(days=1)))
        tls = LiveTls()
        keeper = self.keeper(tmp_path, tls)
        asyncio.run(keeper.look())
        assert handshake(tls, bundle) is not None
        first = tls.served
        asyncio.run(keeper.look())
        assert tls.served is first

    def test_a_certificate_of_a_clock_that_was_ahead_is_signed_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, tls = dt.datetime.now(dt.UTC), LiveTls()
        bundle = self.mounted(tmp_path, certificates.authority(now, dt.timedelta(days=30)))
        keeper = self.keeper(tmp_path, tls)
        with monkeypatch.context() as ahead:
            tomorrow = SimpleNamespace(now=lambda _: now + dt.timedelta(days=1))
            ahead.setattr(keeper_module, "dt", SimpleNamespace(datetime=tomorrow, UTC=dt.UTC))
            asyncio.run(keeper.look())
        with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
            handshake(tls, bundle)
        asyncio.run(keeper.look())
        assert handshake(tls, bundle) is not None

    def test_another_authority_signs_another_certificate_at_once(self, tmp_path: Path) -> None:
        now, tls = dt.datetime.now(dt.UTC), LiveTls()
        self.mounted(tmp_path, certificates.authority(now, dt.timedelta(days=1)))
        keeper = self.keeper(tmp_path, tls)
        asyncio.run(keeper.look())
        bundle = self.mounted(tmp_path, certificates.authority(now, dt.timedelta(days=1)))
        asyncio.run(keeper.look())
        assert handshake(tls, bundle) is not None

    def test_a_certificate_is_renewed_in_time_by_the_same_authority(self) -> None:
        authority = certificates.authority(NOW, dt.timedelta(days=1))
        pair = certificates.sign(authority, NAME, NOW, LIFETIME)
        assert certificates.renewal_time(pair) == NOW + LIFETIME * 2 / 3
        late = certificates.sign(authority, NAME, NOW + dt.timedelta(hours=23, minutes=59), LIFETIME)
        assert late.leaf.not_valid_after_utc == authority.leaf.not_valid_after_utc, "never beyond the authority"

    def test_what_is_no_authority_signs_nothing_and_what_is_served_stays(self, tmp_path: Path) -> None:
        now, tls = dt.datetime.now(dt.UTC), LiveTls()
        good = certificates.authority(now, dt.timedelta(days=1))
        self.mounted(tmp_path, good)
        keeper = self.keeper(tmp_path, tls)
        asyncio.run(keeper.look())
        served = tls.served
        for wrong in (
            certificates.issue(NAME, now, LIFETIME),
            certificates.authority(now - dt.timedelta(days=3), dt.timedelta(days=1)),
            Pair(good.certificate, certificates.authority(now, LIFETIME).key),
            Pair(b"nothing", b"nothing"),
        ):
            self.mounted(tmp_path, wrong)
            with pytest.raises(CertificateError):
                asyncio.run(keeper.look())
        (tmp_path / "ca.key").unlink()
        with pytest.raises(CertificateError, match=r"ca\.key: can't be read"):
            asyncio.run(keeper.look())
        assert tls.served is served
