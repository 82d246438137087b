"""What the Secret holds, and what becomes of it next: a pure function, the same in every replica.

A certificate's life: made as `next`, its authority goes into caBundle beside the old one; once that was so for a while,
it becomes `current`; its authority stays in the bundle until it expires. So at every moment each certificate that a
replica may still serve is trusted by each API server.
"""

import base64
import binascii
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agents.admission.certificates import pairs as certificates
from agents.admission.certificates.pairs import Pair
from agents.admission.errors import CertificateError

_CURRENT = ("tls.crt", "tls.key")
_NEXT = ("next.crt", "next.key")
_AUTHORITIES = "ca.crt"


@dataclass(frozen=True)
class Rules:
    """How certificates are made.

    Attributes:
        dns_name: the Service's name.
        lifetime: of a certificate.
        propagation: how long an authority is published before its certificate is served.
    """

    dns_name: str
    lifetime: dt.timedelta
    propagation: dt.timedelta


@dataclass(frozen=True)
class Custody:
    """The Secret's content.

    Attributes:
        current: what is served.
        next: what will be served.
        authorities: PEM bundle of all that are trusted.
    """

    current: Pair | None = None
    next: Pair | None = None
    authorities: bytes = field(default=b"", repr=False)


def read(data: Mapping[str, str] | None) -> Custody:
    """Read a Secret's `data`; what is not base64 counts as absent, and so is made anew."""
    return Custody(
        current=_pair(data or {}, _CURRENT),
        next=_pair(data or {}, _NEXT),
        authorities=_decode((data or {}).get(_AUTHORITIES, "")),
    )


def write(custody: Custody) -> dict[str, str]:
    """The Secret's `data`."""
    values = {_AUTHORITIES: custody.authorities}
    for pair, (certificate, key) in ((custody.current, _CURRENT), (custody.next, _NEXT)):
        if pair is not None:
            values |= {certificate: pair.certificate, key: pair.key}
    return {name: base64.b64encode(value).decode() for name, value in values.items()}


def advance(custody: Custody, now: dt.datetime, rules: Rules, next_published_for: dt.timedelta | None) -> Custody:
    """The Secret's content as it should be now; the same if nothing is due.

    Args:
        custody: what it holds.
        now: the time of day, UTC.
        rules: how certificates are made.
        next_published_for: how long the next pair's authority has been in every caBundle, or None if it is not.
    """
    current = _usable(custody.current, now, rules)
    coming = _usable(custody.next, now, rules)
    if current is None:
        # Nothing can be served, so there is nothing to wait for.
        current, coming = coming or certificates.issue(rules.dns_name, now, rules.lifetime), None
    elif coming is None:
        if not certificates.is_young(current, now):
            coming = certificates.issue(rules.dns_name, now, rules.lifetime)
    elif next_published_for is not None and next_published_for >= rules.propagation:
        current, coming = coming, None
    pairs = [pair.certificate for pair in (coming, current) if pair is not None]
    changed = replace(
        custody,
        current=current,
        next=coming,
        authorities=certificates.bundle([*pairs, custody.authorities], now),
    )
    return custody if changed == custody else changed


def _usable(pair: Pair | None, now: dt.datetime, rules: Rules) -> Pair | None:
    if pair is None:
        return None
    try:
        pair.check(rules.dns_name, now)
    except CertificateError:
        return None
    # One of a clock that was ahead would be refused by API servers until then.
    return pair if pair.leaf.not_valid_before_utc <= now else None


def _pair(data: Mapping[str, str], names: tuple[str, str]) -> Pair | None:
    certificate, key = (_decode(data.get(name, "")) for name in names)
    return Pair(certificate, key) if certificate and key else None


def _decode(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
