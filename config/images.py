"""Container images by reference: three types, each stricter than the one before."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from config.model import Name

_HOST = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
# As the container runtimes read it (distribution's package reference): letters of a path are small.
REGISTRY = rf"{_HOST}(\.{_HOST})*(:[0-9]{{1,5}})?"
PATH = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*"
_REFERENCE = re.compile(
    rf"({REGISTRY}/)?{PATH}(:(?P<tag>[\w][\w.-]{{0,127}}))?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_LONGEST = 512


def each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a Secret that is listed twice."""
    for name in names:
        if names.count(name) > 1:
            raise PydanticCustomError("pull_secret_twice", "'{name}' is listed twice: remove one", {"name": name})
    return names


def _match(value: str) -> re.Match[str] | None:
    return _REFERENCE.fullmatch(value) if len(value) <= _LONGEST else None


def _reference(value: str) -> str:
    if _match(value) is None:
        raise PydanticCustomError("image_reference", "not an image reference, such as registry/name:tag")
    return value


def _pinned(value: str) -> str:
    match = _match(value)
    if match is None or not (match["digest"] or match["tag"] not in {None, "latest"}):
        raise PydanticCustomError(
            "image_not_pinned",
            "not an image with a fixed content: write registry/name:tag with a tag other than latest, or better "
            "registry/name@sha256:digest",
        )
    return value


def _digest(value: str) -> str:
    match = _match(value)
    if match is None or not match["digest"]:
        raise PydanticCustomError(
            "image_without_digest", "not an image with a digest: write registry/name:tag@sha256:digest"
        )
    return value


PullSecrets = Annotated[tuple[Name, ...], AfterValidator(each_once), Field(strict=False)]
"""Names of existing docker-registry Secrets, each once: server-side apply refuses a pod that names one twice."""
ImageReference = Annotated[
    str, AfterValidator(_reference), Field(title="image reference", examples=["registry.example.com/app:1.0"])
]
"""Any reference."""
PinnedImage = Annotated[
    str,
    AfterValidator(_pinned),
    Field(title="image with a tag or digest", examples=["registry.example.com/app:1.0"]),
]
"""With a tag other than `latest`, or a digest."""
DigestImage = Annotated[str, AfterValidator(_digest), Field(title="image with a digest")]
"""With a digest."""
