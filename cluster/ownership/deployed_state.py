"""What a stack remembers of its last `up`, as far as it decides whose an object of the cluster is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import AliasPath, BaseModel, Field, ValidationError

from manifests.many_nodes import MANY_NODE_LABELS, apart
from manifests.ownership import BEFORE, FIELD_MANAGER, kept_values, key

STACK = "pulumi:pulumi:Stack"
RELEASE = "kubernetes:helm.sh/v3:Release"
"""Types of resources, as Pulumi and its Kubernetes provider call them."""
TOP = "kai-anywhere:index:KaiAnywhere"
"""The component above everything, which remembers what was adopted in the states of earlier versions.

It does so once a run has come to its end.
"""
STASH = "pulumi:index:Stash"
"""Pulumi's own resource that keeps a value: here what was adopted, from before the first of it is written.

The annotation alone is no memory: who writes the object anew takes it off, and a refresh forgets it then.
"""
_PROVIDER = "pulumi:providers:kubernetes"
_OBJECT = "kubernetes:"
_ENGINE_OWN = "pulumi:"


def is_of_this_program(urn: str) -> bool:
    """Whether a resource stands below the component above everything, or is it, by its URN's path of types.

    A team's own program may have more in the stack. Symptom without it: a namespace that it made counted as ours, so
    that the component took it without a word, and deleted it with all that was in it when it went.
    """
    return TOP in urn.replace("$", "::").split("::")


class _Metadata(BaseModel, extra="ignore", frozen=True):
    name: str
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Written(BaseModel, extra="ignore", frozen=True):
    """What the Kubernetes provider keeps of an object: what it wrote, beside what it read."""

    kind: str
    metadata: _Metadata


class _Kept(BaseModel, extra="ignore", frozen=True):
    written: _Written = Field(alias="__inputs")


class _Top(BaseModel, extra="ignore", frozen=True):
    adopted: dict[str, str] = {}


class _Stash(BaseModel, extra="ignore", frozen=True):
    adopted: dict[str, str] = Field(default={}, validation_alias=AliasPath("input", BEFORE))


@dataclass(frozen=True)
class DeployedState:
    """What the stack remembers of its last `up`.

    Attributes:
        deployed: whether it has any resource.
        cluster_uid: the identity of the cluster they are in, or None.
        releases: the Helm releases that it knows, as namespace and name.
        objects: the Kubernetes objects that it knows, as `Kind/name` or `Kind/namespace/name`.
        managers: the field managers by which it wrote namespaces, by object.
        labels: the labels that it gave to nodes, by node.
        patched: the nodes whose labels are resources of their own.
        adopted: what adopted objects held before, by object.
        begun: the same of those that it does not know: a run was killed while it adopted them, or they left the stack.
        urns: the places of its resources in the program; only the program is told of them.
    """

    deployed: bool = False
    cluster_uid: str | None = None
    releases: frozenset[tuple[str, str]] = frozenset()
    objects: frozenset[str] = frozenset()
    managers: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    patched: frozenset[str] = frozenset()
    adopted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    urns: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, resources: Iterable[tuple[str, Mapping[str, object]]]) -> Self:
        """Read it from the state's resources of this program, each a type token and its outputs."""
        listed = list(resources)
        identities = {
            str(outputs["clusterIdentifier"])
            for token, outputs in listed
            if token == _PROVIDER and outputs.get("clusterIdentifier")
        }
        written = [
            content
            for token, outputs in listed
            if token.startswith(_OBJECT) and token != RELEASE and (content := _written(outputs)) is not None
        ]
        patched = frozenset(content.metadata.name for content in written if content.kind == "Node")
        written += [
            _Written.model_validate(node)
            for token, outputs in listed
            if token == MANY_NODE_LABELS
            for node in apart(outputs).values()
        ]
        objects = _names(key(content.model_dump()) for content in written)
        adopted = {
            key(content.model_dump()): kept_values(content.metadata.annotations[BEFORE])
            for content in written
            if BEFORE in content.metadata.annotations
        }
        remembered = _remembered(listed)
        adopted |= {name: kept for name, kept in remembered.items() if name in objects}
        return cls(
            deployed=any(not token.startswith(_ENGINE_OWN) for token, _ in listed),
            cluster_uid=min(identities, default=None),
            releases=frozenset(
                (str(outputs.get("namespace")), str(outputs.get("name")))
                for token, outputs in listed
                if token == RELEASE
            ),
            objects=objects,
            managers={
                key(content.model_dump()): content.metadata.annotations[FIELD_MANAGER]
                for content in written
                if content.kind == "Namespace" and FIELD_MANAGER in content.metadata.annotations
            },
            labels={content.metadata.name: content.metadata.labels for content in written if content.kind == "Node"},
            patched=patched,
            adopted=adopted,
            begun={name: kept for name, kept in remembered.items() if name not in objects},
        )


def _remembered(resources: Iterable[tuple[str, Mapping[str, object]]]) -> dict[str, dict[str, Any]]:
    """What was adopted, and was to be."""
    remembered: dict[str, str] = {}
    for token, outputs in resources:
        if token == TOP:
            remembered |= _Top.model_validate(outputs).adopted
        # A program around this one may keep values of its own.
        if token == STASH and isinstance(value := outputs.get("input"), dict) and BEFORE in value:
            remembered |= _Stash.model_validate(outputs).adopted
    return {name: kept_values(text) for name, text in remembered.items()}


def _names(written: Iterable[str]) -> frozenset[str]:
    """Objects under the names by which they are looked up.

    The provider writes the namespace `default` where it does not know yet that a kind has none: where the kind came
    with a release of the same run (pulumi-kubernetes 4.25).
    """
    names = frozenset(written)
    return names | {name.replace("/default/", "/") for name in names if "/default/" in name}


def _written(outputs: Mapping[str, object]) -> _Written | None:
    """What was written, or None for a resource that stands for several objects."""
    try:
        return _Kept.model_validate(outputs).written
    except ValidationError:
        return None
