"""The answers of the API server, as far as they are read: each is validated once, by its model."""

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from config.gvirtus import FRONTEND_ALLOWED
from gpu_sharing.model import MOST_GPUS, MigStrategy
from gpu_sharing.quantities import MIB, quantity
from gpu_sharing.request import GPU, MIG_PREFIX, TIME_SLICE
from manifests.node_labels import GPU_COUNT, MIG_STRATEGY

T = TypeVar("T")

_MOST_DEVICES = 16_000
"""Of one node: 16 GPUs with as many replicas as settings allow. A billion would exhaust the memory."""
_MOST_DIGITS = 18
"""More are no number to KAI."""
_MIG_ENABLED = "node-role.kubernetes.io/mig-enabled"


def _statuses(conditions: object) -> object:
    """Conditions as a mapping of type to status."""
    return (
        {condition["type"]: condition["status"] for condition in conditions}
        if isinstance(conditions, list)
        else conditions
    )


def _changes(conditions: object) -> object:
    """Conditions as a mapping of type to when the status changed last."""
    if not isinstance(conditions, list):
        return conditions
    return {condition["type"]: since for condition in conditions if (since := condition.get("lastTransitionTime"))}


def _metadata_writes(managed_fields: object) -> object:
    """`metadata.managedFields` as a mapping of label or annotation to when its last writer wrote."""
    if not isinstance(managed_fields, list):
        return managed_fields
    writes: dict[str, str] = {}
    for entry in managed_fields:
        metadata = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for part in ("f:labels", "f:annotations"):
            for name in metadata.get(part) or ():
                if entry.get("time"):
                    key = sys.intern(name.removeprefix("f:"))
                    writes[key] = max(entry["time"], writes.get(key, ""))
    return writes


def _messages(conditions: object) -> object:
    """Conditions as a mapping of type to what they say of themselves."""
    return (
        {condition["type"]: condition.get("message", "") for condition in conditions}
        if isinstance(conditions, list)
        else conditions
    )


def _mebibytes(value: object) -> int:
    """A quantity of memory as MiB: a kubelet reports `131072Ki`, a virtual one may report `100G`."""
    return int(quantity(str(value)) // MIB)


def _whole(value: object) -> int:
    """A quantity of devices as a number: the API server writes 1000 as `1k`."""
    return int(quantity(str(value)))


def _devices(value: object) -> int:
    """Allocatable `nvidia.com/gpu` as a number."""
    return min(_whole(value), _MOST_DEVICES)


class Answer(BaseModel, extra="ignore", frozen=True):
    """An answer of the API server: the fields we read, with their types; it may hold more."""


class FieldOwner(Answer):
    """An entry of `metadata.managedFields`: who last wrote which fields."""

    manager: str = ""
    operation: str = ""
    """`Apply` or `Update`."""
    subresource: str = ""
    time: datetime | None = None
    """When it last wrote any of its fields."""
    fields: dict[str, Any] = Field(default={}, alias="fieldsV1")

    def owns_label(self, label: str) -> bool:
        """Whether it wrote this label."""
        labels = self.fields.get("f:metadata", {}).get("f:labels", {})
        return f"f:{label}" in labels


class LiveObject(Answer):
    """An object of any kind as it is now, and who wrote it."""

    content: dict[str, Any]
    owners: list[FieldOwner] = Field(
        default=[], validation_alias=AliasPath("content", "metadata", "managedFields"), exclude=True
    )
    annotations: dict[str, str] = Field(
        default={}, validation_alias=AliasPath("content", "metadata", "annotations"), exclude=True
    )

    @property
    def managers(self) -> list[str]:
        """Who wrote anything of it but its status, in the order of the API server."""
        return list(dict.fromkeys(owner.manager for owner in self.owners if not owner.subresource))

    @property
    def release(self) -> tuple[str, str] | None:
        """Namespace and name of the Helm release that it came with."""
        return _release(self.annotations, self.content["metadata"].get("namespace", ""))


class NodeMetadata(Answer):
    """A node's metadata alone, for its labels."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    uid: str = Field(validation_alias=AliasPath("metadata", "uid"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))


class Node(Answer):
    """A node, as far as the program looks at it."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))
    architecture: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "architecture"))
    kernel: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "kernelVersion"))
    os_image: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "osImage"))
    kubelet: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "kubeletVersion"))
    container_runtime: str = Field(
        default="", validation_alias=AliasPath("status", "nodeInfo", "containerRuntimeVersion")
    )
    memory_mib: Annotated[int, BeforeValidator(_mebibytes)] = Field(
        default=0, validation_alias=AliasPath("status", "capacity", "memory")
    )
    """MemTotal in MiB, as kubelet reports it."""
    devices: Annotated[int, BeforeValidator(_devices)] = Field(
        default=0, validation_alias=AliasPath("status", "allocatable", GPU)
    )
    """Allocatable `nvidia.com/gpu`: physical GPUs times replicas, or what stands for remote ones."""
    gpu_capacity: Annotated[int, BeforeValidator(_devices)] = Field(
        default=0, validation_alias=AliasPath("status", "capacity", GPU)
    )
    """The same with those that are not well."""
    allocatable: dict[str, str] = Field(default={}, validation_alias=AliasPath("status", "allocatable"))
    """What pods may have of it, by resource."""
    taints: list[dict[str, Any]] = Field(default=[], validation_alias=AliasPath("spec", "taints"))
    unschedulable: bool = Field(default=False, validation_alias=AliasPath("spec", "unschedulable"))
    conditions: Annotated[dict[str, str], BeforeValidator(_statuses)] = Field(
        default={}, validation_alias=AliasPath("status", "conditions")
    )
    """What the node says of itself: type to status."""
    condition_changes: Annotated[dict[str, datetime], BeforeValidator(_changes)] = Field(
        default={}, validation_alias=AliasPath("status", "conditions")
    )
    """Since when it says so, by type."""
    messages: Annotated[dict[str, str], BeforeValidator(_messages)] = Field(
        default={}, validation_alias=AliasPath("status", "conditions")
    )
    """The same: type to message."""

    @property
    def gpus(self) -> int:
        """The devices that are GPUs of its own: a frontend of remote GPUs has none."""
        return 0 if self.labels.get(FRONTEND_ALLOWED) == "true" else self.devices

    @property
    def gpu_count(self) -> int | None:
        """Its GPUs by the label by which KAI counts them, `MOST_GPUS` at most; None where KAI can't read it."""
        label = self.labels.get(GPU_COUNT, "")
        return min(int(label), MOST_GPUS) if label.isdecimal() and len(label) <= _MOST_DIGITS else None

    @property
    def slices(self) -> dict[str, int]:
        """Allocatable MIG slices, by resource."""
        slices = {name: _whole(count) for name, count in self.allocatable.items() if name.startswith(MIG_PREFIX)}
        return {name: count for name, count in slices.items() if count}

    @property
    def time_slices(self) -> int:
        """Allocatable replicas of its GPUs that the device plugin advertises under a name that KAI does not know."""
        return _devices(self.allocatable.get(TIME_SLICE, 0))

    @property
    def keeps_off(self) -> list[str]:
        """Its taints that keep pods off, as kubectl writes them."""
        return [
            f"{taint.get('key')}{f'={value}' if (value := taint.get('value')) else ''}:{taint['effect']}"
            for taint in self.taints
            if taint.get("effect") in {"NoSchedule", "NoExecute"}
        ]

    @property
    def mig(self) -> MigStrategy | None:
        """By which MIG strategy KAI places pods here; None where its GPUs are not divided for it (IsMIGEnabled).

        GPU Feature Discovery writes the operator's strategy on every node, `single` by default, whatever its GPUs.
        """
        enabled = self.labels.get(_MIG_ENABLED)
        if not (self.slices if enabled is None else enabled.lower() in {"1", "t", "true"}):
            return None
        strategy = self.labels.get(MIG_STRATEGY)
        return MigStrategy(strategy) if strategy in set(MigStrategy) else MigStrategy.NONE

    def label_since(self, label: str) -> datetime | None:
        """When a label's writer wrote last; None where the API server does not tell."""
        return max((entry.time for entry in self.owners if entry.time and entry.owns_label(label)), default=None)


class Namespace(Answer):
    """A namespace and its labels."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    uid: str = Field(validation_alias=AliasPath("metadata", "uid"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))


class Container(Answer):
    """A container of a pod template."""

    image: str = ""


class PodContainer(Answer):
    """A container of a pod, and the resources that it asks for and is limited to."""

    name: str = ""
    image: str = ""
    requests: dict[str, str] = Field(default={}, validation_alias=AliasPath("resources", "requests"))
    limits: dict[str, str] = Field(default={}, validation_alias=AliasPath("resources", "limits"))
    restart_policy: str = Field(default="", alias="restartPolicy")
    """`Always` makes a sidecar of an init container."""

    def as_manifest(self) -> dict[str, Any]:
        """What was read, as it stands in a manifest."""
        resources = {"requests": self.requests, "limits": self.limits}
        return {"name": self.name, "resources": resources, "restartPolicy": self.restart_policy}


class ContainerState(Answer):
    """Why a container waits, or how it ended."""

    reason: str = ""
    message: str = ""
    exit_code: int | None = Field(default=None, alias="exitCode")
    ended: datetime | None = Field(default=None, alias="finishedAt")


class ContainerStatus(Answer):
    """What the kubelet says of a container."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    """Of a sidecar: whether what runs after it may begin."""
    restarts: int = Field(default=0, alias="restartCount")
    state: dict[str, ContainerState] = {}
    """By `waiting`, `running` or `terminated`; one of them."""
    before: dict[str, ContainerState] = Field(default={}, alias="lastState")
    """How it ended before it was restarted, likewise."""

    @property
    def end(self) -> ContainerState | None:
        """How it ended last; None where it never did."""
        return self.state.get("terminated") or self.before.get("terminated")


class Condition(Answer):
    """What an object says of itself."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = Field(default=None, alias="lastTransitionTime")
    """When the status changed last."""


class Pod(Answer):
    """A pod, as far as the commands look at it."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(validation_alias=AliasPath("metadata", "namespace"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    created: datetime | None = Field(default=None, validation_alias=AliasPath("metadata", "creationTimestamp"))
    deleted: datetime | None = Field(default=None, validation_alias=AliasPath("metadata", "deletionTimestamp"))
    """Since when it is being deleted."""
    owner: str = Field(default="", validation_alias=AliasPath("metadata", "ownerReferences", 0, "name"))
    """The name of what made it, such as a ReplicaSet."""
    owner_kind: str = Field(default="", validation_alias=AliasPath("metadata", "ownerReferences", 0, "kind"))
    metadata_writes: Annotated[dict[str, datetime], BeforeValidator(_metadata_writes)] = Field(
        default={}, validation_alias=AliasPath("metadata", "managedFields")
    )
    """When the last writer of a label or annotation wrote, by its name."""
    node: str = Field(default="", validation_alias=AliasPath("spec", "nodeName"))
    """Empty where it is not bound to one."""
    scheduler: str = Field(default="", validation_alias=AliasPath("spec", "schedulerName"))
    runtime_class: str = Field(default="", validation_alias=AliasPath("spec", "runtimeClassName"))
    priority_class: str = Field(default="", validation_alias=AliasPath("spec", "priorityClassName"))
    priority: int | None = Field(default=None, validation_alias=AliasPath("spec", "priority"))
    """The number of its PriorityClass, which the API server writes."""
    containers: list[PodContainer] = Field(default=[], validation_alias=AliasPath("spec", "containers"))
    init_containers: list[PodContainer] = Field(default=[], validation_alias=AliasPath("spec", "initContainers"))
    node_selector: dict[str, str] = Field(default={}, validation_alias=AliasPath("spec", "nodeSelector"))
    tolerations: list[dict[str, Any]] = Field(default=[], validation_alias=AliasPath("spec", "tolerations"))
    affinity: dict[str, dict[str, Any]] = Field(default={}, validation_alias=AliasPath("spec", "affinity"))
    overhead: dict[str, str] = Field(default={}, validation_alias=AliasPath("spec", "overhead"))
    resources: dict[str, Any] = Field(default={}, validation_alias=AliasPath("spec", "resources"))
    """Requests and limits of the pod as a whole."""
    claims: list[dict[str, Any]] = Field(default=[], validation_alias=AliasPath("spec", "resourceClaims"))
    """What it has of DRA (resource.k8s.io): the pod does not say of what kind these devices are."""
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))
    phase: str = Field(default="", validation_alias=AliasPath("status", "phase"))
    reason: str = Field(default="", validation_alias=AliasPath("status", "reason"))
    message: str = Field(default="", validation_alias=AliasPath("status", "message"))
    statuses: list[ContainerStatus] = Field(default=[], validation_alias=AliasPath("status", "containerStatuses"))
    init_statuses: list[ContainerStatus] = Field(
        default=[], validation_alias=AliasPath("status", "initContainerStatuses")
    )
    """Of those that run before, and of sidecars: while one of them waits, the others say only that they wait."""

    @property
    def group(self) -> str:
        """Its PodGroup's name; empty where KAI's pod grouper has named none (KAI v0.17.0 pkg/common/constants)."""
        return self.annotations.get("pod-group-name", "")

    @property
    def ended(self) -> bool:
        """Whether it holds no resources any more."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def gated(self) -> bool:
        """Whether scheduling gates hold it back."""
        return any(condition.reason == "SchedulingGated" for condition in self.conditions)

    @property
    def may_be_placed(self) -> bool:
        """Whether a scheduler looks for a node for it: not where it is being deleted, or has scheduling gates."""
        return not (self.node or self.deleted or self.gated)

    def since(self, condition: str) -> datetime | None:
        """Since when a condition of this type holds; None where it does not."""
        return next((each.since for each in self.conditions if (each.type, each.status) == (condition, "True")), None)

    @property
    def insists_on_nodes(self) -> bool:
        """Whether its affinity keeps it off nodes; what it only prefers does not."""
        return any("requiredDuringSchedulingIgnoredDuringExecution" in terms for terms in self.affinity.values())

    @property
    def gpus(self) -> int:
        """How many `nvidia.com/gpu` its containers have."""
        return sum(_whole(container.limits.get(GPU, 0)) for container in self.containers)

    @property
    def time_slices(self) -> int:
        """How many replicas of GPUs its containers have where these have a name of their own."""
        limits = [container.limits[TIME_SLICE] for container in self.containers if TIME_SLICE in container.limits]
        return sum(map(_whole, limits))

    def as_manifest(self) -> dict[str, Any]:
        """What a pod asks for, as it stands in a manifest: what `gpu_sharing.request` reads."""
        spec = {
            "containers": [container.as_manifest() for container in self.containers],
            "initContainers": [container.as_manifest() for container in self.init_containers],
            "overhead": self.overhead,
            "resources": self.resources,
        }
        return {"metadata": {"labels": self.labels, "annotations": self.annotations}, "spec": spec}


class Event(Answer):
    """What happened to an object."""

    message: str = ""
    reason: str = ""
    kind: str = Field(default="", validation_alias=AliasPath("involvedObject", "kind"))
    name: str = Field(default="", validation_alias=AliasPath("involvedObject", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))


class Installed(Answer):
    """An object that says which Helm release it came with, if it came with one."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    containers: list[Container] = Field(
        default=[], validation_alias=AliasPath("spec", "template", "spec", "containers")
    )

    @property
    def release(self) -> tuple[str, str] | None:
        """Namespace and name of its Helm release."""
        return _release(self.annotations, self.namespace)


def _release(annotations: Mapping[str, str], namespace: str) -> tuple[str, str] | None:
    name = annotations.get("meta.helm.sh/release-name")
    return (annotations.get("meta.helm.sh/release-namespace", namespace), name) if name else None


class _Workload(Installed):
    """What has a controller that makes its pods."""

    generation: int = Field(default=0, validation_alias=AliasPath("metadata", "generation"))
    observed: int = Field(default=0, validation_alias=AliasPath("status", "observedGeneration"))
    """The generation that the status speaks of."""

    @property
    def is_observed(self) -> bool:
        """Whether the controller has seen the last change, so that the status speaks of it."""
        return self.observed >= self.generation


class Deployment(_Workload):
    """A Deployment's readiness."""

    desired: int = Field(default=1, validation_alias=AliasPath("spec", "replicas"))
    available: int = Field(default=0, validation_alias=AliasPath("status", "availableReplicas"))
    updated: int = Field(default=0, validation_alias=AliasPath("status", "updatedReplicas"))
    """Replicas of the present template."""
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def rolled_out(self) -> bool:
        """Whether all replicas of the present template were available once, whatever became of them since.

        Its controller does not take that reason back before the template changes (Kubernetes v1.36
        pkg/controller/deployment/progress.go), and where that goes back to an older one, not before a replica has it.
        """
        return (
            self.is_observed
            and self.updated >= self.desired
            and any(
                condition.type == "Progressing" and condition.reason == "NewReplicaSetAvailable"
                for condition in self.conditions
            )
        )


class DaemonSet(_Workload):
    """A DaemonSet's readiness."""

    desired: int = Field(default=0, validation_alias=AliasPath("status", "desiredNumberScheduled"))
    """On how many nodes it belongs."""
    ready: int = Field(default=0, validation_alias=AliasPath("status", "numberReady"))
    """On how many of them its pod is ready."""


class HelmRevision(Answer):
    """One stored revision of a Helm release: the Secret's labels, never its content."""

    secret: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    release: str = Field(default="", validation_alias=AliasPath("metadata", "labels", "name"))
    version: int = Field(default=0, validation_alias=AliasPath("metadata", "labels", "version"))
    status: str = Field(default="", validation_alias=AliasPath("metadata", "labels", "status"))
    created: str = Field(default="", validation_alias=AliasPath("metadata", "creationTimestamp"))
    uid: str = Field(default="", validation_alias=AliasPath("metadata", "uid"))
    resource_version: str = Field(default="", validation_alias=AliasPath("metadata", "resourceVersion"))

    @property
    def half_done(self) -> bool:
        """Whether Helm is at work on it, or was killed there: `pending-install`, `-upgrade` or `-rollback`."""
        return self.status.startswith("pending-")


class ObjectMetadata(Answer):
    """What an object of any kind is called, and who made it."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    uid: str = Field(default="", validation_alias=AliasPath("metadata", "uid"))
    created: str = Field(default="", validation_alias=AliasPath("metadata", "creationTimestamp"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))

    @property
    def release(self) -> tuple[str, str] | None:
        """Namespace and name of the Helm release that it came with."""
        return _release(self.annotations, self.namespace)


class DiscoveredKind(Answer):
    """A kind as the API server lists it."""

    plural: str = Field(alias="resource")
    kind: str = Field(default="", validation_alias=AliasPath("responseKind", "kind"))
    scope: str = ""
    verbs: list[str] = []


class DiscoveredVersion(Answer):
    """A version of an API group, with its kinds."""

    version: str
    resources: list[DiscoveredKind] = []


class DiscoveredGroup(Answer):
    """An API group; the core one has no name."""

    name: str = Field(default="", validation_alias=AliasPath("metadata", "name"))
    versions: list[DiscoveredVersion] = []


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


class PullSecret(Answer):
    """A Secret with the login of a registry, its content included."""

    type: str = ""
    data: dict[str, str] = Field(default={}, repr=False)


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

    resources: list[ResourceName] = []
