"""What a check of pods can say: where it looks, what may stand there, and what lifts it.

Two interpreters read this language: the policy pack (policy/interpreter.py) and the cluster's guard
(manifests/pod_guard.py). A new word of it needs both; a new check needs one entry of the table.
"""

from dataclasses import dataclass
from enum import Enum, unique
from typing import TypeAlias


@unique
class Place(Enum):
    """Where a check looks; its fields are named from there."""

    POD = "the pod's spec"
    CONTAINERS = "each container of each list"
    CONTEXTS = "the security contexts of the pod and of each container"
    HANDLERS = "the probes and lifecycle hooks of each container"
    VOLUMES = "each volume"
    ANNOTATIONS = "annotations; fields are prefixes of their keys, and what they end with behind a `*`"
    ENVIRONMENT = "environment variables of each container; fields are their names"


@dataclass(frozen=True)
class OneOf:
    """A string that is set is one of these."""

    values: frozenset[str]


@dataclass(frozen=True)
class NotTrue:
    """A switch is off."""


@dataclass(frozen=True)
class Zero:
    """A number is not set, or zero."""


@dataclass(frozen=True)
class Absent:
    """Nothing is there at all.

    Attributes:
        shown: the field of a forbidden value that a message shows; empty for the value itself.
    """

    shown: str = ""


@dataclass(frozen=True)
class Begins:
    """A string is empty or begins with one of these."""

    prefixes: tuple[str, ...]


@dataclass(frozen=True)
class BeginsNot:
    """A string does not begin with this."""

    prefix: str


@dataclass(frozen=True)
class NoStartOf:
    """A string is empty, or this text does not begin with it."""

    text: str


@dataclass(frozen=True)
class Pinned:
    """An image reference has a digest, or a tag that is not `latest`."""


Allowed: TypeAlias = OneOf | NotTrue | Zero | Absent | Begins | BeginsNot | NoStartOf | Pinned


@unique
class Unless(Enum):
    """What lifts a check from a container."""

    OWN_USERS = "the pod has a user namespace of its own"
    GPU_REQUESTED = (
        "a container of the pod requests a GPU, or the pod a fraction from KAI, by the annotations of the stack's mode"
    )
    WRITTEN_BY_KAI = "KAI's binder writes it into a pod that is there"
    GIVEN_BY_KAI = (
        "it is the container that gets the pod's fraction: KAI's webhook sets the variable anew, but for NvFractions"
    )


@dataclass(frozen=True)
class Check:
    """One thing that no pod has.

    Attributes:
        name: an identifier.
        rule: the pack's rule that it belongs to.
        place: where it looks.
        fields: keys from there joined by dots; `[]` after a key goes through the items of its list.
        allowed: what may stand there. A field that is absent is allowed.
        why: what it would allow.
        remedy: what to do instead.
        unless: what lifts it.
    """

    name: str
    rule: str
    place: Place
    fields: tuple[str, ...]
    allowed: Allowed
    why: str
    remedy: str
    unless: Unless | None = None
