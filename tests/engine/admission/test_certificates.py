"""Certificates of the server's own making: renewed under load, always trusted, made again when they are lost."""

import base64
import datetime as dt
import ssl
import time
from collections.abc import Iterator

import httpx2
import pytest
from cryptography import x509

from agents.admission.certificates import custody
from agents.admission.certificates import pairs as certificates
from agents.admission.certificates.custody import Custody
from manifests import admission
from testbed.admission.deployment import CONFIGURATIONS, Deployment
from testbed.waiting import eventually
from tests.support.admission.pods import LIFETIME_SECONDS, Load, all_of, is_mutated_now, post, served
from tests.support.pods.reservation_cases import as_binder_creates

_REQUESTS = 300
_PAUSE_SECONDS = 0.25
"""Two minutes without a pause would only take the processor from the tests beside it."""
_PATH = f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}"
_SECRET = f"/api/v1/namespaces/kai-anywhere/secrets/{admission.NAME}"


def test_certificates_of_two_minutes_rotate_and_expire_under_load_without_a_failed_request(
    api: httpx2.Client, two_replicas: Deployment
) -> None:
    """The API server connects anew whenever caBundle changes; we do so all the time, with what it says then."""
    server = two_replicas
    first = {served(replica.port, server.bundle(), server) for replica in server.replicas}
    end = max(certificate.not_valid_after_utc for certificate in first)
    assert end < dt.datetime.now(dt.UTC) + dt.timedelta(seconds=LIFETIME_SECONDS)
    presented = set(first)
    bundles = {server.bundle()}
    with Load(api, pause_seconds=_PAUSE_SECONDS) as load:

        def over() -> bool:
            time.sleep(_PAUSE_SECONDS)
            bundle = server.bundle()
            bundles.add(bundle)
            presented.update(served(replica.port, bundle, server) for replica in server.replicas)
            return load.answered >= _REQUESTS and dt.datetime.now(dt.UTC) > end

        eventually(over, within_seconds=5 * LIFETIME_SECONDS)
        old = {certificate.issuer for certificate in first}
        eventually(lambda: not old & _authorities(server.bundle()))
        answered = load.answered
        eventually(lambda: load.answered > answered + 20)
    assert load.failures == []
    last = {served(replica.port, server.bundle(), server) for replica in server.replicas}
    assert not last & first, "what expired is served no more"
    assert len(presented) >= 2, "the certificate was never exchanged"
    assert any(_authorities(bundle) - old and _authorities(bundle) & old for bundle in bundles), (
        "the next authority was never published beside the old one"
    )


class TestWhatIsLostIsMadeAgain:
    """Nobody has to come and mend it."""

    @pytest.fixture(autouse=True)
    @staticmethod
    def whole_again(api: httpx2.Client, two_replicas: Deployment) -> Iterator[None]:
        yield
        assert two_replicas.replicas
        eventually(lambda: all_of(4, lambda: is_mutated_now(api)))

    def test_replicas_that_slept_past_the_end_of_their_certificate_wake_up_with_another_one(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        two_replicas.kill()
        long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=30)
        expired = certificates.issue(two_replicas.dns_name, long_ago, dt.timedelta(minutes=2))
        held = Custody(current=expired, authorities=certificates.bundle([expired.certificate], long_ago))
        _hold(api, held)
        _trust(api, held.authorities)
        two_replicas.start()
        eventually(lambda: is_mutated_now(api))
        [issuer] = _authorities(two_replicas.bundle())
        assert issuer != expired.leaf.issuer

    def test_a_secret_that_somebody_empties_is_filled_with_another_certificate(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        """Not with what is still served: who empties it may know that the key is no secret any more."""
        before = {served(replica.port, two_replicas.bundle(), two_replicas) for replica in two_replicas.replicas}
        _hold(api, Custody())
        eventually(lambda: _all_serve_another(two_replicas, before))

    @pytest.mark.parametrize("stranger", [True, False], ids=["another authority", "none at all"])
    def test_a_bundle_that_somebody_writes_over_is_put_right(
        self, api: httpx2.Client, two_replicas: Deployment, *, stranger: bool
    ) -> None:
        now = dt.datetime.now(dt.UTC)
        other = certificates.issue("other.default.svc", now, dt.timedelta(hours=1))
        written = certificates.bundle([other.certificate], now) if stranger else b""
        _trust(api, written)
        eventually(lambda: two_replicas.bundle() != written)
        assert other.leaf.issuer not in _authorities(two_replicas.bundle())
        eventually(lambda: is_mutated_now(api))


def test_a_certificate_is_never_for_another_name(api: httpx2.Client, two_replicas: Deployment) -> None:
    """Whoever writes one for another name into the Secret gets it replaced, not served."""
    now = dt.datetime.now(dt.UTC)
    other = certificates.issue("other.default.svc", now, dt.timedelta(hours=1))
    _hold(api, Custody(current=other, authorities=certificates.bundle([other.certificate], now)))
    eventually(lambda: custody.read(api.get(_SECRET).json()["data"]).current != other)
    eventually(lambda: all_of(4, lambda: is_mutated_now(api)))
    eventually(lambda: _all_serve_another(two_replicas, {other.leaf}))
    assert post(api, as_binder_creates()).status_code == httpx2.codes.CREATED


def _all_serve_another(server: Deployment, before: set[x509.Certificate]) -> bool:
    """Whether every replica presents the same certificate, none of these, and one that caBundle trusts."""
    try:
        now = {served(replica.port, server.bundle(), server) for replica in server.replicas}
    except ssl.SSLCertVerificationError:
        return False
    return len(now) == 1 and not now & before


def _hold(api: httpx2.Client, held: Custody) -> None:
    """Write the server's Secret, whatever it holds."""

    def written() -> bool:
        secret = api.get(_SECRET).json()
        return api.put(_SECRET, json=secret | {"data": custody.write(held)}).status_code == httpx2.codes.OK

    eventually(written)


def _trust(api: httpx2.Client, bundle: bytes) -> None:
    """Write caBundle, as an administrator may."""
    value = base64.b64encode(bundle).decode()
    operation = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": value}
    headers = {"Content-Type": "application/json-patch+json"}
    answer = api.patch(_PATH, json=[operation], headers=headers)
    assert answer.status_code == httpx2.codes.OK, answer.text


def _authorities(bundle: bytes) -> set[x509.Name]:
    return {certificate.subject for certificate in x509.load_pem_x509_certificates(bundle)} if bundle else set()
