"""Keeps the served certificate valid and trusted: looks at Secret or files and at caBundle, again and again."""

import asyncio
import datetime as dt
import logging
import time
from pathlib import Path
from typing import Protocol

from agents.admission.certificates import custody
from agents.admission.certificates import pairs as certificates
from agents.admission.certificates.custody import Custody, Rules
from agents.admission.certificates.pairs import Pair
from agents.admission.certificates.publication import is_published, publish
from agents.admission.certificates.tls import LiveTls
from agents.admission.errors import ApiError, CertificateError
from agents.admission.kubernetes import ApiServer
from agents.admission.settings import MountedCertificate, OwnCertificate, Settings, SignedCertificate

_LOG = logging.getLogger(__name__)
_CONFLICT = 409
_TRIES = 5


class Keeper(Protocol):
    """A way to get certificates.

    Attributes:
        trusted: whether caBundle was seen with the authority of what is served, as far as we may look.
    """

    trusted: bool

    async def look(self) -> None:
        """Look once, and do what is due.

        Raises:
            ApiError: the API server refused, or could not be reached.
            CertificateError: there is nothing that can be served.
        """


def keeper_of(settings: Settings, api: ApiServer, tls: LiveTls) -> Keeper:
    """The keeper that the settings ask for."""
    match settings.certificate:
        case OwnCertificate() as own:
            return OwnKeeper(settings, own, api, tls)
        case MountedCertificate() as mounted:
            return MountedKeeper(settings, mounted, api, tls)
        case SignedCertificate() as signed:
            return SigningKeeper(settings, signed, tls)


async def keep(keeper: Keeper, interval_seconds: float) -> None:
    """Look for ever; a look that fails is repeated, and what is served stays."""
    while True:
        try:
            await keeper.look()
        except (ApiError, CertificateError) as error:
            _LOG.warning("the certificate could not be looked after", extra={"error": str(error)})
        await asyncio.sleep(interval_seconds)


class OwnKeeper:
    """Certificates of our own, shared by all replicas through a Secret."""

    def __init__(self, settings: Settings, own: OwnCertificate, api: ApiServer, tls: LiveTls) -> None:
        self.trusted = False
        self._api = api
        self._tls = tls
        self._configurations = settings.webhook_configurations
        self._path = f"/api/v1/namespaces/{settings.namespace}/secrets/{own.secret}"
        self._rules = Rules(
            dns_name=settings.dns_name,
            lifetime=dt.timedelta(seconds=own.lifetime_seconds),
            propagation=dt.timedelta(seconds=own.propagation_seconds),
        )
        self._published: tuple[Pair, float] | None = None
        """The next pair, and when its authority was first seen in every caBundle (monotonic clock)."""

    async def look(self) -> None:
        """Advance the Secret, publish its authorities, then serve its certificate: in this order."""
        held = await self._advance()
        before = [await publish(self._api, configuration, held.authorities) for configuration in self._configurations]
        if held.next is None:
            self._published = None
        elif self._published is None or self._published[0] != held.next:
            self._published = held.next, time.monotonic()
        if held.current is not None:
            changed = held.current != self._tls.served
            self._tls.load(held.current)
            if changed:
                _log_loaded(held.current)
        # At the first installation all of them are waited for; later one may be gone, and the others go on.
        self.trusted = self.trusted or None not in before or True in before

    async def _advance(self) -> Custody:
        for _ in range(_TRIES):
            secret = await self._api.get(self._path)
            held = custody.read(secret.get("data"))
            # By the clock of who judges certificates: ours may be ahead, and the Secret is every replica's.
            advanced = custody.advance(held, self._api.now, self._rules, self._published_for(held))
            if advanced == held:
                return held
            try:
                # With the version that was read: of two replicas, one writes, the other reads what it wrote.
                await self._api.replace(self._path, {**secret, "data": custody.write(advanced)})
            except ApiError as error:
                if error.status != _CONFLICT:
                    raise
                continue
            _LOG.info("certificates advanced", extra={"next": advanced.next is not None})
            return advanced
        raise ApiError(_CONFLICT, f"{self._path}: others write it faster than it can be read")

    def _published_for(self, held: Custody) -> dt.timedelta | None:
        if self._published is None or self._published[0] != held.next:
            return None
        return dt.timedelta(seconds=time.monotonic() - self._published[1])


class MountedKeeper:
    """Certificates in mounted files, and a caBundle that somebody else writes."""

    def __init__(self, settings: Settings, mounted: MountedCertificate, api: ApiServer, tls: LiveTls) -> None:
        self.trusted = False
        self._api = api
        self._tls = tls
        self._configurations = settings.webhook_configurations
        self._folder = Path(mounted.folder)
        self._dns_name = settings.dns_name

    async def look(self) -> None:
        """Serve what the files hold now."""
        # First, since the answers bring the API server's clock.
        try:
            self.trusted = await is_published(self._api, self._configurations)
        except ApiError as error:
            # What was seen before holds: API servers that are away for a moment take nothing out of caBundle.
            _LOG.warning("caBundle can't be read", extra={"error": str(error)})
        pair = _read(self._folder, "tls")
        if pair != self._tls.served:
            pair.check(self._dns_name, self._api.now)
            self._tls.load(pair)
            _log_loaded(pair)


class SigningKeeper:
    """Certificates that this replica signs and keeps to itself: nothing of the API server's is read or written."""

    def __init__(self, settings: Settings, signed: SignedCertificate, tls: LiveTls) -> None:
        self.trusted = True
        """The stack writes caBundle before it starts us, and we may not even read it."""
        self._tls = tls
        self._folder = Path(signed.folder)
        self._dns_name = settings.dns_name
        self._lifetime = dt.timedelta(seconds=signed.lifetime_seconds)
        self._authority: Pair | None = None

    async def look(self) -> None:
        """Sign another certificate if the authority is another one, or the time has come."""
        authority, now = _read(self._folder, "ca"), dt.datetime.now(dt.UTC)
        served = self._tls.served
        if served is not None and authority == self._authority and certificates.is_young(served, now):
            return
        pair = certificates.sign(authority, self._dns_name, now, self._lifetime)
        self._tls.load(pair)
        self._authority = authority
        _log_loaded(pair)


def _read(folder: Path, name: str) -> Pair:
    try:
        return Pair((folder / f"{name}.crt").read_bytes(), (folder / f"{name}.key").read_bytes())
    except OSError as error:
        raise CertificateError(f"{error.filename}: can't be read: {error.strerror}") from None


def _log_loaded(pair: Pair) -> None:
    _LOG.info("certificate loaded", extra={"expires": f"{pair.leaf.not_valid_after_utc:%FT%TZ}"})
