"""What is added to pods at admission, as data: policies render it in CEL, the admission server reads it as JSON."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

VERSION: Final = 2
"""Of the document that the admission server reads. Another shape of it is another version."""
NAME, HOST, PORT = "{name}", "{host}", "{port}"
"""Marks in annotations and variables: a pod's choice, and where what it chose answers, which only the cluster knows."""


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
    )


class Pods(_Part):
    """Which pods are changed.

    Attributes:
        labels: that they carry.
        namespace: theirs; None where the webhook's own selector says enough.
        node_labels: of their node; none for any node, or no node yet.
    """

    labels: dict[str, str]
    namespace: str | None = None
    node_labels: dict[str, str] = Field(default_factory=dict)


class Own(_Part):
    """What a pod says itself comes first. Without this, what is added does.

    A container that sets one of the variables to another value is left alone.

    Attributes:
        volume: what a volume of our name says if it is ours; any other is refused.
        volume_taken: that refusal.
        path_taken: refusal of a mount of another volume at our path, in a container without the variables.
        left_alone: warning for a container that is left alone, with the mark `{container}`.
    """

    volume: dict[str, Any] = Field(default_factory=dict)
    volume_taken: str = ""
    path_taken: str = ""
    left_alone: str = ""


class Fragment(_Part):
    """What a pod gets. Defaults that the API server fills in are written out, so that pods compare.

    Attributes:
        container: the container that gets it; None for all of them, init containers and sidecars included.
        container_missing: refusal of a pod without that container, with the marks `{node}` and `{containers}`.
        annotations: of the pod.
        runtime_class_name: the pod's.
        env: merged by name.
        volumes: merged by name.
        volume_mounts: merged by path.
        security_context: of the container.
        pod_security_context: of the pod; a list in it is put in the place of the pod's own.
        own: how the pod's own settings come first.
    """

    container: str | None = None
    container_missing: str = ""
    annotations: dict[str, str] = Field(default_factory=dict)
    runtime_class_name: str | None = None
    env: list[dict[str, str]] = Field(default_factory=list)
    volumes: list[dict[str, Any]] = Field(default_factory=list)
    volume_mounts: list[dict[str, Any]] = Field(default_factory=list)
    security_context: dict[str, Any] = Field(default_factory=dict)
    pod_security_context: dict[str, Any] = Field(default_factory=dict)
    own: Own | None = None


class Choice(_Part):
    """How a pod chooses among fragments.

    Attributes:
        annotation: names what it chooses.
        default: of pods without the annotation, or None where they must have it.
        unnamed: refusal of a pod that names none where there is no default.
        unknown: refusal of a name that there is not, with the mark `{name}`.
        not_yet: refusal while the server does not know where the chosen one answers.
    """

    annotation: str
    default: str | None
    unnamed: str
    unknown: str
    not_yet: str


class Warnings(_Part):
    """What is doubtful about pods that are let through.

    Attributes:
        annotations: text by an annotation that the pod has.
        more_than_one: text by a resource of which a container asks for more than one, with the marks `{container}` and
            `{count}`.
    """

    annotations: dict[str, str] = Field(default_factory=dict)
    more_than_one: dict[str, str] = Field(default_factory=dict)


class Rewrite(_Part):
    """At a pod's update: an annotation that another program writes gets another value, and ours keeps what it wrote.

    Attributes:
        annotation: the other program's.
        value: what it says then; a pod that says so, or nothing, is left alone.
        kept: ours.
        nodes: names of the nodes whose pods are meant.
    """

    annotation: str
    value: str
    kept: str
    nodes: list[str]


class Mutation(_Part):
    """A mutation of pods at their creation.

    Attributes:
        pods: which ones.
        fragments: what they get, by what they may choose; the one of a mutation without a choice has no name.
        choice: how they choose, or None.
        by_node: the name of the fragment by the pod's node, where nodes differ; pods of other nodes are left alone.
        warnings: for those that are let through.
        rewrite: what is changed at their update, or None.
    """

    pods: Pods
    fragments: dict[str, Fragment]
    choice: Choice | None = None
    by_node: dict[str, str] = Field(default_factory=dict)
    warnings: Warnings = Warnings()
    rewrite: Rewrite | None = None

    def document(self) -> dict[str, Any]:
        """As the admission server reads it: `agents/admission/mutation.py` has the same names."""
        return self.model_dump(mode="json", exclude_defaults=True)
