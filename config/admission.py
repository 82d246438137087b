"""Settings of the admission server, which runs only where something is carried by a webhook."""

from enum import StrEnum, unique
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from config.charts import PullPolicy
from config.images import PinnedImage, PullSecrets
from config.model import Name, Settings

_DAY_SECONDS = 24 * 60 * 60
_MAX_NAMESPACE = 37
"""A certificate's CN has at most 64 characters: `kai-anywhere-admission.<namespace>.svc`."""


@unique
class Webhook(StrEnum):
    """What the admission server can carry; each has a carrier setting in the section of its name."""

    RESERVATION = "reservation"
    GVIRTUS = "gvirtus"


@unique
class IssuerKind(StrEnum):
    """cert-manager's two kinds of issuer."""

    ISSUER = "Issuer"
    CLUSTER_ISSUER = "ClusterIssuer"


class OwnCertificates(Settings):
    """The server makes its certificates itself and keeps them in a Secret; nothing else has to be installed."""

    kind: Literal["own"]
    """The admission server makes its certificates."""
    lifetime_seconds: Annotated[int, Field(ge=60, le=365 * _DAY_SECONDS)] = 30 * _DAY_SECONDS
    """The next certificate is made after two thirds of it."""
    propagation_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long a new authority is published before its certificate is served: time for every API server to hear of
    it."""

    @model_validator(mode="after")
    def _the_next_certificate_is_in_time(self) -> Self:
        if self.lifetime_seconds < 6 * self.propagation_seconds:
            raise PydanticCustomError(
                "certificate_lifetime",
                "lifetime_seconds {lifetime} is too short for propagation_seconds {propagation}: the next certificate "
                "is made after two thirds of it and must be served before the end. Use at least {least}.",
                {
                    "lifetime": self.lifetime_seconds,
                    "propagation": self.propagation_seconds,
                    "least": 6 * self.propagation_seconds,
                },
            )
        return self


class CertManagerCertificates(Settings):
    """cert-manager makes the certificates and writes caBundle; it is installed already."""

    kind: Literal["cert-manager"]
    """cert-manager makes them."""
    issuer: Name
    """A CA issuer: API servers trust what it writes as ca.crt."""
    issuer_kind: Annotated[IssuerKind, Field(strict=False)] = IssuerKind.ISSUER
    """An Issuer lies in the admission server's namespace."""


class StackCertificates(Settings):
    """The program makes the authority and publishes it; each replica signs its own certificate.

    The server then needs no right on webhook configurations, nor on any Secret.
    """

    kind: Literal["stack"]
    """The program makes the authority."""
    authorities: Annotated[tuple[Name, ...], Field(strict=False, min_length=1, max_length=4)] = ("a",)
    """Names of your choice: the first one signs, all are trusted. A new name is a new authority."""
    lifetime_seconds: Annotated[int, Field(ge=60, le=365 * _DAY_SECONDS)] = 30 * _DAY_SECONDS
    """Of a replica's certificate; the next one is made after two thirds of it."""

    @field_validator("authorities")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if names.count(name) > 1:
                raise PydanticCustomError(
                    "authority_twice", "authority '{name}' is there twice: remove one", {"name": name}
                )
        return names


Certificates = Annotated[OwnCertificates | CertManagerCertificates | StackCertificates, Field(discriminator="kind")]


def _fits_a_certificate(value: str) -> str:
    if len(value) > _MAX_NAMESPACE:
        raise PydanticCustomError(
            "admission_namespace",
            "too long: the server's name stands in a certificate, which leaves the namespace {most} characters",
            {"most": _MAX_NAMESPACE},
        )
    return value


class AdmissionSettings(Settings):
    """The admission server: one Deployment, in a namespace of its own."""

    image: PinnedImage | None = None
    """The image of agents/Containerfile as you built and pushed it; required where a carrier is `webhook`."""
    pull_policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    pull_secrets: PullSecrets = ()
    """Names of existing docker-registry Secrets in the server's namespace."""
    namespace: Annotated[Name, AfterValidator(_fits_a_certificate)] = "kai-anywhere"
    """Its namespace, which no other part of the stack uses."""
    replicas: Annotated[int, Field(ge=2, le=10)] = 2
    """At least two: while none runs, the pods that it is for are refused."""
    certificates: Certificates = OwnCertificates(kind="own")
    """Who makes the certificate that API servers check."""
    timeout_seconds: Annotated[int, Field(ge=1, le=10)] = 5
    """How long an API server waits for an answer before it refuses the pod."""
