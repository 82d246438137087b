"""Pods and what happened to them, as the API server answers."""

import sys
from datetime import datetime
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field

from cluster.access.answers.answer import Answer, Condition, Moment, whole, written
from gpu_sharing.request import GPU, TIME_SLICE


def _metadata_writes(managed_fields: object) -> object:
    """`metadata.managedFields` as a mapping of label or annotation to when its last writer wrote."""
    if not isinstance(managed_fields, list):
        return managed_fields
    writes: dict[str, str] = {}
    for entry in managed_fields:
        metadata = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for part in ("f:labels", "f:annotations"):
            for name in metadata.get(part) or ():
                if time := written(entry.get("time")):
                    key = sys.intern(name.removeprefix("f:"))
                    writes[key] = max(time, writes.get(key, ""))
    return writes


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
    ended: Moment = Field(default=None, alias="finishedAt")


class ContainerStatus(Answer):
    """What the kubelet says of a container."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    """Of a sidecar: whether what runs after it may begin."""
    restarts: int = Field(default=0, alias="restartCount")
    state: dict[str, ContainerState] = Field(default={})
    """By `waiting`, `running` or `terminated`; one of them."""
    before: dict[str, ContainerState] = Field(default={}, alias="lastState")
    """How it ended before it was restarted, likewise."""

    @property
    def end(self) -> ContainerState | None:
        """How it ended last; None where it never did."""
        return self.state.get("terminated") or self.before.get("terminated")


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
        return next(
            (entry.since for entry in self.conditions if (entry.type, entry.status) == (condition, "True")), None
        )

    @property
    def insists_on_nodes(self) -> bool:
        """Whether its affinity keeps it off nodes; what it only prefers does not."""
        return any("requiredDuringSchedulingIgnoredDuringExecution" in terms for terms in self.affinity.values())

    @property
    def gpus(self) -> int:
        """How many `nvidia.com/gpu` its containers have."""
        return sum(whole(container.limits.get(GPU, 0)) for container in self.containers)

    @property
    def time_slices(self) -> int:
        """How many replicas of GPUs its containers have where these have a name of their own."""
        limits = [container.limits[TIME_SLICE] for container in self.containers if TIME_SLICE in container.limits]
        return sum(map(whole, limits))

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
