"""What of a cluster concerns shared GPUs, read once: nodes, pods, and KAI's queues, pod groups and bind requests.

Read-only, with whatever rights the user has: what the API server refuses is noted down, and the rest is read.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from pydantic import AliasPath, Field

from cluster.answers import Answer, Condition, Node, Pod
from cluster.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError

PODS = "pods"
"""What pods are called where they could not be read."""
_PARALLEL = 5
_KAI = "/apis/scheduling.run.ai"
_POD_GROUPS, _BIND_REQUESTS = f"{_KAI}/v2alpha2/podgroups", f"{_KAI}/v1alpha2/bindrequests"

T = TypeVar("T")


class QueueResource(Answer):
    """What a queue may have of one resource; -1 stands for no limit, in `quota` too.

    Source: KAI v0.17.0 pkg/apis/scheduling/v2/queue_types.go. GPUs are counted in GPUs, of which fractions are parts.
    """

    quota: float = 0
    limit: float = -1
    over_quota_weight: float = Field(default=1, alias="overQuotaWeight")


class Queue(Answer):
    """A queue of KAI's (scheduling.run.ai/v2)."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    parent: str = Field(default="", validation_alias=AliasPath("spec", "parentQueue"))
    gpu: QueueResource = Field(default=QueueResource(), validation_alias=AliasPath("spec", "resources", "gpu"))
    cpu: QueueResource = Field(default=QueueResource(), validation_alias=AliasPath("spec", "resources", "cpu"))
    """In millicpus."""
    memory: QueueResource = Field(default=QueueResource(), validation_alias=AliasPath("spec", "resources", "memory"))
    """In MB, of 10^6 bytes."""
    priority: int = Field(default=100, validation_alias=AliasPath("spec", "priority"))
    allocated: dict[str, str] = Field(default={}, validation_alias=AliasPath("status", "allocated"))
    """What its pods have, as the queue controller counts it, by resource."""


class Explanation(Answer):
    """One of the scheduler's reasons why pods can't be placed."""

    reason: str = ""
    message: str = ""


class SchedulingCondition(Condition):
    """What the scheduler says of a pod group (KAI v0.17.0 pkg/apis/scheduling/v2alpha2/podgroup_types.go)."""

    reasons: list[Explanation] = Field(default=[])


class PodGroup(Answer):
    """The pods that KAI schedules together (scheduling.run.ai/v2alpha2)."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(validation_alias=AliasPath("metadata", "namespace"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    queue: str = Field(default="", validation_alias=AliasPath("spec", "queue"))
    min_member: int = Field(default=1, validation_alias=AliasPath("spec", "minMember"))
    priority_class: str = Field(default="", validation_alias=AliasPath("spec", "priorityClassName"))
    preemptibility: str = Field(default="", validation_alias=AliasPath("spec", "preemptibility"))
    """Empty where the priority decides."""
    scheduling_conditions: list[SchedulingCondition] = Field(
        default=[], validation_alias=AliasPath("status", "schedulingConditions")
    )


class FractionalGroup(Answer):
    """A GPU group of a bind request, as KAI v0.18 says it."""

    id: str


class BindRequest(Answer):
    """What the scheduler asks of the binder for one pod (scheduling.run.ai/v1alpha2)."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(validation_alias=AliasPath("metadata", "namespace"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    pod: str = Field(default="", validation_alias=AliasPath("spec", "podName"))
    node: str = Field(default="", validation_alias=AliasPath("spec", "selectedNode"))
    created: datetime | None = Field(default=None, validation_alias=AliasPath("metadata", "creationTimestamp"))
    gpu_groups: list[str] = Field(default=[], validation_alias=AliasPath("spec", "selectedGPUGroups"))
    """Up to KAI v0.17."""
    fractional_groups: list[FractionalGroup] = Field(
        default=[], validation_alias=AliasPath("spec", "selectedFractionalGpuGroups")
    )
    """From KAI v0.18 on."""
    phase: str = Field(default="", validation_alias=AliasPath("status", "phase"))
    reason: str = Field(default="", validation_alias=AliasPath("status", "reason"))
    failed_attempts: int = Field(default=0, validation_alias=AliasPath("status", "failedAttempts"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    @property
    def groups(self) -> tuple[str, ...]:
        """The GPU groups that the scheduler chose."""
        return tuple(each.id for each in self.fractional_groups) or tuple(self.gpu_groups)

    @property
    def open(self) -> bool:
        """Whether the binder is still at it: the scheduler counts the pod's share already."""
        return self.phase not in {"Succeeded", "Failed"}


@dataclass(frozen=True)
class Unseen:
    """What could not be read.

    Attributes:
        what: in words, as `pods`.
        why: the API server's answer.
        but: the namespace of which it could be read; empty where it could not at all.
    """

    what: str
    why: str
    but: str = ""


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment, each list in the order of names.

    Attributes:
        taken: when it was read.
        unseen: what could not be read; its list is empty, or has one namespace's objects.
    """

    taken: datetime
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    queues: tuple[Queue, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    bind_requests: tuple[BindRequest, ...] = ()
    unseen: tuple[Unseen, ...] = ()


@dataclass
class _Reader:
    """Reads lists beside each other, and notes down what is refused.

    Attributes:
        unseen: what could not be read so far.
    """

    unseen: list[Unseen] = field(default_factory=list)

    def take(self, what: str, answer: "Future[list[T]]") -> tuple[T, ...]:
        """A list, or nothing where the API server refuses it.

        Raises:
            ClusterUnreachableError: if it does not answer.
        """
        try:
            return tuple(answer.result())
        except ClusterUnreachableError:
            raise
        except ClusterError as error:
            self.unseen.append(Unseen(what, str(error).splitlines()[0]))
            return ()

    def take_or(
        self, what: str, answer: "Future[list[T]]", of_namespace: "Callable[[], list[T]]", namespace: str
    ) -> tuple[T, ...]:
        """A list, or what of it one namespace has, where only that may be read."""
        objects = self.take(what, answer)
        if not namespace or not self.unseen or self.unseen[-1].what != what:
            return objects
        with contextlib.suppress(ClusterError):
            objects = tuple(of_namespace())
            self.unseen[-1] = replace(self.unseen[-1], but=namespace)
        return objects


def read_snapshot(cluster: Cluster, namespace: str = "") -> Snapshot:
    """Read everything, several lists at a time.

    Args:
        cluster: where.
        namespace: whose pods, pod groups and bind requests are read where those of all namespaces may not be.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    reader = _Reader()
    with ThreadPoolExecutor(_PARALLEL) as pool:

        def ask(path: str, kind: type[T]) -> "Future[list[T]]":
            return pool.submit(cluster.objects, path, kind)

        def take(what: str, answer: "Future[list[T]]", path: str, kind: type[T]) -> tuple[T, ...]:
            group, _, plural = path.rpartition("/")
            in_namespace = partial(cluster.objects, f"{group}/namespaces/{namespace}/{plural}", kind)
            return reader.take_or(what, answer, in_namespace, namespace)

        nodes, pods = ask("/api/v1/nodes", Node), ask("/api/v1/pods", Pod)
        queues = ask(f"{_KAI}/v2/queues", Queue)
        groups = ask(_POD_GROUPS, PodGroup)
        requests = ask(_BIND_REQUESTS, BindRequest)
        return Snapshot(
            taken=datetime.now(UTC),
            nodes=_sorted(reader.take("nodes", nodes), lambda node: (node.name,)),
            pods=_sorted(take(PODS, pods, "/api/v1/pods", Pod), lambda pod: (pod.namespace, pod.name)),
            queues=_sorted(reader.take("KAI's queues", queues), lambda queue: (queue.name,)),
            pod_groups=_sorted(
                take("KAI's pod groups", groups, _POD_GROUPS, PodGroup), lambda group: (group.namespace, group.name)
            ),
            bind_requests=_sorted(
                take("KAI's bind requests", requests, _BIND_REQUESTS, BindRequest),
                lambda request: (request.namespace, request.name),
            ),
            unseen=tuple(reader.unseen),
        )


def _sorted(objects: tuple[T, ...], by: Callable[[T], tuple[str, ...]]) -> tuple[T, ...]:
    return tuple(sorted(objects, key=by))
