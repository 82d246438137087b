"""The server's settings, one mounted JSON file that `manifests/admission.py` writes."""

from pathlib import Path
from typing import Annotated

import msgspec

from agents.admission import files
from agents.admission.errors import SettingsError
from agents.admission.mutation import Mutation

VERSION = 2
"""Of the file's shape."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class OwnCertificate(msgspec.Struct, tag="own", tag_field="kind", frozen=True, forbid_unknown_fields=True):
    """Certificates that the server makes itself and keeps in a Secret.

    Attributes:
        secret: the Secret's name, in the server's namespace; it exists already, perhaps empty.
        lifetime_seconds: of a certificate; the next one is made after two thirds of it.
        propagation_seconds: how long a new authority is in caBundle before its certificate is served: time for every
            API server to hear of it.
    """

    secret: Text
    lifetime_seconds: Seconds
    propagation_seconds: Seconds


class MountedCertificate(msgspec.Struct, tag="mounted", tag_field="kind", frozen=True, forbid_unknown_fields=True):
    """Certificates that somebody else keeps fresh, such as cert-manager, who also writes caBundle.

    Attributes:
        folder: holds tls.crt and tls.key.
    """

    folder: Text


class SignedCertificate(msgspec.Struct, tag="signed", tag_field="kind", frozen=True, forbid_unknown_fields=True):
    """Certificates that each replica signs for itself, by an authority that the stack publishes in caBundle.

    Attributes:
        folder: holds the authority, ca.crt and ca.key.
        lifetime_seconds: of a certificate; the next one is made after two thirds of it.
    """

    folder: Text
    lifetime_seconds: Seconds


class Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach the API server from outside a pod; in a pod, the kubelet's files say it.

    Attributes:
        server: address, `https://host:port`.
        ca_file: certificates that are trusted.
        token_file: bearer token; read again for each request, since the kubelet renews it.
    """

    server: Text
    ca_file: Text
    token_file: Text


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the server is told.

    Attributes:
        version: of the file's shape.
        namespace: the server's own.
        service: its Service; the certificate is for `<service>.<namespace>.svc`.
        webhook_configurations: MutatingWebhookConfigurations that send to this server.
        certificate: where certificates come from.
        mutations: what is added to pods, by the last part of the webhooks' paths.
        check_seconds: how often Secret, mounted files and caBundle are looked at.
        drain_seconds: how long requests are still answered after SIGTERM, until no API server sends any more.
        host: address to listen on; without it all of the pod's, which is not known before it runs, IPv4 and IPv6.
        port: of the webhooks, TLS.
        health_port: of /healthz, /readyz and /metrics, without TLS.
        api: the API server; in a pod it is left out.
    """

    version: int
    namespace: Text
    service: Text
    webhook_configurations: tuple[Text, ...]
    certificate: OwnCertificate | MountedCertificate | SignedCertificate
    mutations: dict[str, Mutation]
    check_seconds: Seconds = 10
    drain_seconds: Annotated[float, msgspec.Meta(ge=0)] = 5
    host: Text | None = None
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8443
    health_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8080
    api: Api | None = None

    @property
    def dns_name(self) -> str:
        """The name under which API servers call this server."""
        return f"{self.service}.{self.namespace}.svc"

    @staticmethod
    def from_file(path: Path) -> "Settings":
        """Read the mounted file.

        Raises:
            SettingsError: it is missing, wrong, or of another version; then the text names both and the way out.
        """
        version = files.read(path, _Versioned).version
        if version == VERSION:
            return files.read(path, Settings)
        way_out = (
            "set admission.image to the image that is built with the program which ran 'pulumi up'"
            if version is not None and version > VERSION
            else "run 'pulumi up' with the program that this image is built with"
        )
        raise SettingsError(
            f"{path}: its version is {'none' if version is None else version}, and this server reads version "
            f"{VERSION}: {way_out}. Replicas that run already serve on"
        )


class _Versioned(msgspec.Struct):
    version: int | None = None
