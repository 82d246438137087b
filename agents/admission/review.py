"""AdmissionReview, admission.k8s.io/v1: bytes in, bytes out."""

import base64
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from agents.admission.errors import BadRequestError

API_VERSION = "admission.k8s.io/v1"
MAX_BODY_BYTES = 1024 * 1024
"""Of a review. No pod comes near it; an API server takes requests of three times this size."""


class Kind(msgspec.Struct, frozen=True):
    """A group, version and kind."""

    version: str
    kind: str
    group: str = ""


class Request(msgspec.Struct, frozen=True):
    """What is asked; the object stays text, so that a review of something else costs nothing."""

    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    kind: Kind
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    object: msgspec.Raw = msgspec.Raw(b"null")
    namespace: str = ""
    sub_resource: str = msgspec.field(name="subResource", default="")

    @property
    def creates_a_pod(self) -> bool:
        """Whether this is what our webhooks are registered for."""
        return self.operation == "CREATE" and self._is_of_a_pod

    @property
    def updates_a_pod(self) -> bool:
        """Whether a pod itself is changed, not one of its parts."""
        return self.operation == "UPDATE" and self._is_of_a_pod

    @property
    def _is_of_a_pod(self) -> bool:
        return self.kind == Kind("v1", "Pod") and not self.sub_resource


class _Review(msgspec.Struct):
    apiVersion: Literal["admission.k8s.io/v1"]  # noqa: N815 - Kubernetes' own name
    kind: Literal["AdmissionReview"]
    request: Request


@dataclass(frozen=True)
class Answer:
    """What is answered.

    Attributes:
        allowed: whether the object may be created.
        patch: RFC 6902 as JSON, or None for no change.
        warnings: shown to the person, each below 256 characters.
        message: why it is refused, and the way out.
        code: HTTP status of the refusal, as the person's client sees it.
    """

    allowed: bool
    patch: bytes | None = None
    warnings: tuple[str, ...] = field(default=())
    message: str = ""
    code: int = 422


_DECODER = msgspec.json.Decoder(_Review)
_ENCODER = msgspec.json.Encoder()
_WARNING_CHARACTERS = 250
"""The API server cuts longer ones (k8s.io/apiserver, 256 bytes each, 4096 together)."""
_WARNINGS = 8


def read(body: bytes) -> Request:
    """Read a request's body.

    Raises:
        BadRequestError: it is no AdmissionReview of version v1.
    """
    try:
        return _DECODER.decode(body).request
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequestError(400, f"not an AdmissionReview of {API_VERSION}: {error}") from None


def write(request: Request, answer: Answer) -> bytes:
    """The response's body."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": answer.allowed}
    if answer.patch is not None:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(answer.patch).decode()}
    if not answer.allowed:
        response["status"] = {"code": answer.code, "message": answer.message}
    if answer.warnings:
        response["warnings"] = [warning[:_WARNING_CHARACTERS] for warning in answer.warnings[:_WARNINGS]]
    return _ENCODER.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
