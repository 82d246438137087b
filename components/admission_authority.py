"""The authority of the admission server's certificates, where the stack makes and publishes it."""

import base64
import datetime as dt
from collections.abc import Sequence
from typing import Any

import pulumi

from manifests.objects import Manifest

_LIFETIME = dt.timedelta(days=10 * 365)
"""Longer than a cluster stays; rotated by another name in the settings, at any time."""
_CERTIFICATE, _KEY = "ca.crt", "ca.key"


def with_new_authority(secret: Manifest) -> Manifest:
    """A Secret with an authority made now, its content a secret of the state.

    Every run makes another one; that of the run which made the Secret stays, since changes of its data are ignored
    (`KEEPS_ITS_AUTHORITY`).
    """
    # Only stacks that ask for it pay for the import.
    from agents.admission.certificates import pairs as certificates  # noqa: PLC0415

    authority = certificates.authority(dt.datetime.now(dt.UTC), _LIFETIME)
    data = {_CERTIFICATE: authority.certificate, _KEY: authority.key}
    encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
    return secret | {"data": pulumi.Output.secret(encoded)}


KEEPS_ITS_AUTHORITY = pulumi.ResourceOptions(ignore_changes=["data"], additional_secret_outputs=["data"])


def trusting(configuration: Manifest, secrets: Sequence[pulumi.Resource]) -> Manifest:
    """A webhook configuration whose API servers trust the authorities in these Secrets; unchanged without any."""
    if not secrets:
        return configuration
    contents = pulumi.Output.all(*(vars(secret)["data"] for secret in secrets))
    # A certificate is no secret.
    bundle = pulumi.Output.unsecret(contents.apply(_bundle))
    webhooks = [
        webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": bundle}}
        for webhook in configuration["webhooks"]
    ]
    return configuration | {"webhooks": webhooks}


def _bundle(contents: Sequence[dict[str, Any]]) -> str:
    return base64.b64encode(b"".join(base64.b64decode(data[_CERTIFICATE]) for data in contents)).decode()
