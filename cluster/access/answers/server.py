"""What the API server says of itself and of requests: kinds, versions, pages of lists, refusals."""

from typing import Annotated, Any, Generic, TypeVar

from pydantic import AliasPath, Field

from cluster.access.answers.answer import Answer

T = TypeVar("T")


class DiscoveredKind(Answer):
    """A kind as the API server lists it."""

    plural: str = Field(alias="resource")
    kind: str = Field(default="", validation_alias=AliasPath("responseKind", "kind"))
    scope: str = ""
    verbs: list[str] = Field(default=[])


class DiscoveredVersion(Answer):
    """A version of an API group, with its kinds."""

    version: str
    resources: list[DiscoveredKind] = Field(default=[])


class DiscoveredGroup(Answer):
    """An API group; the core one has no name."""

    name: str = Field(default="", validation_alias=AliasPath("metadata", "name"))
    versions: list[DiscoveredVersion] = Field(default=[])


class Version(Answer):
    """The API server's version."""

    git: str = Field(alias="gitVersion")
    major: Annotated[str, Field(pattern=r"^\d+$")]
    minor: Annotated[str, Field(pattern=r"^\d+\+?$")]

    @property
    def minor_version(self) -> tuple[int, int]:
        """Major and minor as numbers; managed clusters write the minor as `36+`."""
        return int(self.major), int(self.minor.rstrip("+"))


class Page(Answer, Generic[T]):
    """One page of a list of objects."""

    # An empty list of metadata comes as null (kube-apiserver 1.36).
    items: list[T] | None
    next_page: str = Field(default="", validation_alias=AliasPath("metadata", "continue"))
    """Where the list goes on; empty at its end."""


_PAGES: dict[object, Any] = {}


def page_of(kind: type[T]) -> type[Page[T]]:
    """The model of a page of such objects.

    It is held here: pydantic 2 forgets one that nobody holds, and to make it again takes as long as to ask the cluster.
    """
    if kind not in _PAGES:
        _PAGES[kind] = Page[kind]  # type: ignore[valid-type]  # a runtime class
    page: type[Page[T]] = _PAGES[kind]
    return page


class AccessReview(Answer):
    """Whether the user may do something."""

    allowed: bool = Field(validation_alias=AliasPath("status", "allowed"))


class Objection(Answer):
    """What the API server has against a request: its status, and its own words."""

    code: int
    message: str


class Status(Answer):
    """What the API server says of a request that it did not fulfil."""

    message: str = ""


class ResourceName(Answer):
    """A kind, by its plural."""

    name: str


class Resources(Answer):
    """The kinds of one version of an API group."""

    resources: list[ResourceName] = Field(default=[])
