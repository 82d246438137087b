"""Nodes, as the API server answers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field

from cluster.access.answers.answer import Answer, FieldOwner, whole, written
from config.gvirtus import FRONTEND_ALLOWED
from gpu_sharing.model import MOST_GPUS, MigStrategy
from gpu_sharing.quantities import MIB
from gpu_sharing.request import GPU, MIG_PREFIX, TIME_SLICE
from manifests.node_labels import GPU_COUNT, GPU_PRESENT, MIG_STRATEGY

_MOST_DEVICES = 16_000
"""Of one node: 16 GPUs with as many replicas as settings allow. A billion would exhaust the memory."""
_MOST_DIGITS = 18
"""More are no number to KAI."""
_CONTAINERD = re.compile(r"containerd://v?(\d{1,4})\.(\d{1,4})\.")
_MIG_ENABLED = "node-role.kubernetes.io/mig-enabled"
_OF_KUBERNETES = "node.kubernetes.io/"


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
    return {
        condition["type"]: since for condition in conditions if (since := written(condition.get("lastTransitionTime")))
    }


def _messages(conditions: object) -> object:
    """Conditions as a mapping of type to what they say of themselves."""
    return (
        {condition["type"]: condition.get("message", "") for condition in conditions}
        if isinstance(conditions, list)
        else conditions
    )


def _names(handlers: object) -> object:
    """Runtime handlers as their names; the default one is there once more without any."""
    return {handler.get("name", "") for handler in handlers} - {""} if isinstance(handlers, list) else handlers


def _mebibytes(value: object) -> int:
    """A quantity of memory as MiB: a kubelet reports `131072Ki`, a virtual one may report `100G`."""
    return whole(value, MIB)


def _devices(value: object) -> int:
    """Allocatable `nvidia.com/gpu` as a number."""
    return min(whole(value), _MOST_DEVICES)


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
    runtimes: Annotated[frozenset[str], BeforeValidator(_names)] = Field(
        default=frozenset(), validation_alias=AliasPath("status", "runtimeHandlers")
    )
    """The container runtimes that a RuntimeClass can name there; none where nobody tells: containerd does from 2.0 on,
    kubelet from Kubernetes 1.30 on (pkg/kubelet/nodestatus/setters.go)."""
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
    def is_frontend(self) -> bool:
        """Whether pods use remote GPUs here: it has none of its own, whatever is labelled."""
        return self.labels.get(FRONTEND_ALLOWED) == "true"

    @property
    def containerd_line(self) -> tuple[int, int] | None:
        """Major and minor of the containerd that kubelet tells of; None with another runtime."""
        read = _CONTAINERD.match(self.container_runtime)
        return (int(read[1]), int(read[2])) if read else None

    def lacks_runtime(self, name: str) -> bool:
        """Whether its container runtimes are known, and this one is not among them."""
        return bool(self.runtimes) and name not in self.runtimes

    @property
    def gpus(self) -> int:
        """The devices that are GPUs of its own."""
        return 0 if self.is_frontend else self.devices

    @property
    def usable_gpus(self) -> int:
        """Those that KAI gives away, `MOST_GPUS` at most: what `gpu_count` is to be compared with."""
        return min(self.gpus, MOST_GPUS)

    @property
    def gpu_count(self) -> int | None:
        """Its GPUs by the label by which KAI counts them, `MOST_GPUS` at most; None where KAI can't read it."""
        label = self.labels.get(GPU_COUNT, "")
        return min(int(label), MOST_GPUS) if label.isdecimal() and len(label) <= _MOST_DIGITS else None

    @property
    def tells_of_gpus(self) -> bool:
        """Whether anything says that it has GPUs of its own.

        The GPU Operator marks a node by its PCI devices: long before anything counts its GPUs.
        """
        return not self.is_frontend and bool(self.gpus or self.gpu_count or self.labels.get(GPU_PRESENT) == "true")

    @property
    def slices(self) -> dict[str, int]:
        """Allocatable MIG slices, by resource."""
        slices = {name: whole(count) for name, count in self.allocatable.items() if name.startswith(MIG_PREFIX)}
        return {name: count for name, count in slices.items() if count}

    @property
    def time_slices(self) -> int:
        """Allocatable replicas of its GPUs that the device plugin advertises under a name that KAI does not know."""
        return _devices(self.allocatable.get(TIME_SLICE, 0))

    @property
    def keeps_off(self) -> list[str]:
        """Its taints that keep pods off, as kubectl writes them."""
        return _keeping_off(self.taints)

    def repels(self, tolerations: Sequence[Mapping[str, Any]]) -> list[str]:
        """Its taints that keep the pods of a DaemonSet with these tolerations off, as kubectl writes them.

        Kubernetes' own are for times in which a node is not well, and such pods tolerate them.
        """
        return _keeping_off(
            taint
            for taint in self.taints
            if not str(taint.get("key")).startswith(_OF_KUBERNETES) and not tolerated(taint, tolerations)
        )

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


def _keeping_off(taints: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{taint.get('key')}{f'={value}' if (value := taint.get('value')) else ''}:{taint['effect']}"
        for taint in taints
        if taint.get("effect") in {"NoSchedule", "NoExecute"}
    ]


def tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a pod with these tolerations is not kept off by a taint."""
    if taint.get("effect") == "PreferNoSchedule":
        return True
    for toleration in tolerations:
        key, operator = toleration.get("key"), toleration.get("operator", "Equal")
        if toleration.get("effect") not in {None, "", taint.get("effect")} or (key and key != taint.get("key")):
            continue
        if operator == "Exists" or (key and toleration.get("value", "") == taint.get("value", "")):
            return True
    return False
