"""What a cluster has of a stack that its state may not know: by the marks of Helm and of the field managers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import AliasPath, Field

from cluster.access.answers.answer import Answer, Condition, FieldOwner
from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import HelmRevision, LiveObject, ObjectMetadata
from cluster.access.client import Cluster, object_path
from cluster.access.lists import Reader
from manifests.objects import Manifest
from manifests.ownership import BEFORE, FIELD_MANAGER, key, owner

PROVIDER = "pulumi-resource-kubernetes"
"""The field manager of whatever Pulumi's provider installs with Helm (Helm takes its program's name)."""
HELM_OF_PROVIDER = "pulumi-kubernetes"
"""The field manager of the Secrets in which that Helm notes its revisions."""
GROUPS = ("kai.scheduler", "nfd.k8s-sigs.io", "nvidia.com", "scheduling.run.ai")
"""API groups whose CustomResourceDefinitions the charts of KAI and of the GPU Operator bring."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HALF_DONE = "owner=helm,status in (pending-install,pending-upgrade,pending-rollback)"
_OF_HELM = "app.kubernetes.io/managed-by=Helm"


@dataclass(frozen=True)
class Leftover:
    """An object of the stack's.

    Attributes:
        name: `Kind/name` or `Kind/namespace/name`.
        path: where the API server has it.
        uid: its identity.
        ours: what the stack writes there, where the object was adopted and so is given back; None otherwise.
        doubt: why it may be somebody else's, as the rest of a sentence about it; such an object is left.
    """

    name: str
    path: str
    uid: str
    ours: Manifest | None = None
    doubt: str = ""


@dataclass(frozen=True)
class OwnLabels:
    """Labels of a node that a field manager of the stack's owns.

    Attributes:
        node: its name.
        manager: the field manager.
        labels: with their values.
        before: the node's annotation with what it held before, where it was adopted.
    """

    node: str
    manager: str
    labels: Mapping[str, str]
    before: str | None


class _Version(Answer):
    name: str
    served: bool = False


class Definition(Answer):
    """A CustomResourceDefinition."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    uid: str = Field(validation_alias=AliasPath("metadata", "uid"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))
    group: str = Field(validation_alias=AliasPath("spec", "group"))
    plural: str = Field(validation_alias=AliasPath("spec", "names", "plural"))
    versions: list[_Version] = Field(validation_alias=AliasPath("spec", "versions"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"{DEFINITIONS}/{self.name}"

    @property
    def by_pulumi(self) -> bool:
        """Whether a Helm release of Pulumi's made it: Helm leaves one alone that is there already."""
        return any(entry.manager == PROVIDER for entry in self.owners)


def half_done_revisions(cluster: Cluster) -> list[HelmRevision]:
    """Every Helm revision on which Helm is at work, or was killed, in every namespace; metadata alone."""
    return cluster.objects("/api/v1/secrets", HelmRevision, params={"labelSelector": _HALF_DONE}, metadata=True)


def of_releases(
    cluster: Cluster, releases: frozenset[tuple[str, str]], gone: frozenset[tuple[str, str]] = frozenset()
) -> tuple[list[Leftover], list[str]]:
    """What came with Helm releases, whether Helm still knows it or not; and the kinds that can't be looked at.

    Hooks are not among it: Helm does not mark them (cluster/ownership/helm_hooks.py).

    Args:
        cluster: where.
        releases: each as namespace and name.
        gone: likewise; of these only what Pulumi's provider made, since Helm has no note of them any more.
    """
    if not releases and not gone:
        return [], []
    objects: dict[str, Leftover] = {}
    selector = {"labelSelector": _OF_HELM}
    with Reader(cluster, insists=False) as reader:
        answers = [
            (kind, reader.objects(kind.plural, kind.path, ObjectMetadata, params=selector, metadata=True))
            for kind in list(kinds(cluster))
        ]
        for kind, answer in answers:
            for metadata in answer():
                if metadata.release in releases:
                    objects.setdefault(metadata.uid, leftover(kind, metadata))
                elif metadata.release in gone and PROVIDER in (wrote := _writers(metadata)):
                    others = ", ".join(manager for manager in wrote if manager != PROVIDER)
                    doubt = f"of a Helm release that is gone: {others} wrote it too" if others else ""
                    objects.setdefault(metadata.uid, replace(leftover(kind, metadata), doubt=doubt))
    return sorted(objects.values(), key=lambda entry: entry.name), [str(unseen) for unseen in reader.unseen]


def written_by(cluster: Cluster, manifests: Iterable[Manifest], stack: str) -> list[Leftover]:
    """Those of the objects that are there and have a field manager of the stack's.

    Args:
        cluster: where.
        manifests: what the stack makes.
        stack: the stack, as project/name.
    """
    objects = {}
    for manifest in manifests:
        live = cluster.find_object(manifest)
        managers = [] if live is None else [manager for manager in live.managers if manager.startswith(owner(stack))]
        if live is not None and managers:
            ours = _adopted(manifest, live, managers[0])
            uid = str(live.content["metadata"].get("uid", ""))
            others = "" if ours else ", ".join(_earlier(live, stack))
            doubt = (
                f"with fields of this stack's: {others} wrote it before, and nothing says what it held then"
                if others
                else ""
            )
            objects[key(manifest)] = Leftover(key(manifest), object_path(manifest), uid, ours, doubt)
    return list(objects.values())


def own_labels(nodes: Iterable[Node], stack: str) -> Iterator[OwnLabels]:
    """The labels of nodes that field managers of the stack's own.

    Args:
        nodes: of the cluster.
        stack: the stack, as project/name.
    """
    for node in nodes:
        for entry in node.owners:
            labels = {name: value for name, value in node.labels.items() if entry.owns_label(name)}
            if labels and entry.manager.startswith(owner(stack)):
                yield OwnLabels(node.name, entry.manager, labels, node.annotations.get(BEFORE))


def definitions(cluster: Cluster) -> list[Definition]:
    """The CustomResourceDefinitions of the charts' API groups, whoever made them."""
    return [definition for definition in cluster.objects(DEFINITIONS, Definition) if definition.group in GROUPS]


def objects_of(cluster: Cluster, definition: Definition) -> int | None:
    """How many objects a definition has; None where the API server does not serve them, and so counts none.

    Deleted, such a definition takes its objects along all the same.
    """
    served = [version.name for version in definition.versions if version.served]
    established = any(
        (condition.type, condition.status) == ("Established", "True") for condition in definition.conditions
    )
    if not served or not established:
        return None
    # Each version has all of them.
    path = f"/apis/{definition.group}/{served[0]}/{definition.plural}"
    return len(cluster.objects(path, ObjectMetadata, metadata=True))


@dataclass(frozen=True)
class Kind:
    """A kind that the API server can list and delete.

    Attributes:
        group: its API group; empty for the core one.
        root: the path of the group in the version that it prefers.
        plural: as paths have it.
        kind: as manifests have it.
        namespaced: whether its objects have a namespace.
    """

    group: str
    root: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def path(self) -> str:
        """Where the API server lists its objects."""
        return f"{self.root}/{self.plural}"

    def path_in(self, namespace: str) -> str:
        """Where the API server lists those of a namespace, if the kind has one."""
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if self.namespaced and namespace else self.path


def kinds(cluster: Cluster) -> Iterator[Kind]:
    """Every kind that can be listed and deleted, in its group's preferred version."""
    for group in cluster.kinds():
        plurals: set[str] = set()
        for version in group.versions:
            root = f"/apis/{group.name}/{version.version}" if group.name else f"/api/{version.version}"
            for resource in version.resources:
                if resource.plural not in plurals and {"list", "delete"} <= set(resource.verbs):
                    plurals.add(resource.plural)
                    yield Kind(group.name, root, resource.plural, resource.kind, resource.scope == "Namespaced")


def leftover(kind: Kind, metadata: ObjectMetadata) -> Leftover:
    """An object of a kind as one of the stack's."""
    name = "/".join([kind.kind, *filter(None, [metadata.namespace, metadata.name])])
    return Leftover(name, f"{kind.path_in(metadata.namespace)}/{metadata.name}", metadata.uid)


def _writers(metadata: ObjectMetadata) -> list[str]:
    """Who wrote anything of an object but its status."""
    return list(dict.fromkeys(entry.manager for entry in metadata.owners if not entry.subresource))


def _earlier(live: LiveObject, stack: str) -> Iterator[str]:
    """Whose fields are older than the stack's: it did not make the object, whoever took its annotation off.

    What a chart of the stack's own made is none of others.
    """
    wrote = [(entry.time, entry.manager) for entry in live.owners if entry.time and not entry.subresource]
    since = min((time for time, manager in wrote if manager.startswith(owner(stack))), default=None)
    for time, manager in wrote:
        if since and time < since and manager != PROVIDER:
            yield manager


def _adopted(manifest: Manifest, live: LiveObject, manager: str) -> Manifest | None:
    """What the stack writes, with the annotations by which it is given back."""
    if BEFORE not in live.annotations:
        return None
    from_us = {BEFORE: live.annotations[BEFORE], FIELD_MANAGER: manager}
    metadata = manifest["metadata"]
    return manifest | {"metadata": metadata | {"annotations": metadata.get("annotations", {}) | from_us}}
