"""What of a cluster concerns shared GPUs, read once: nodes, pods, and KAI's queues, pod groups and bind requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from pydantic import AliasPath, Field

from cluster.access.answers.answer import Answer, Condition
from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.access.lists import Reader, Unseen
from gpu_sharing.queues import QUEUE_LABEL
from gpu_sharing.request import GPU_GROUP, SCHEDULER, PodRequest, pod_request
from manifests import reservation
from manifests.node_labels import KAI_NODE_POOL

NODES, PODS, QUEUES = "nodes", "pods", "KAI's queues"
POD_GROUPS, BIND_REQUESTS, CONFIG = "KAI's pod groups", "KAI's bind requests", "KAI's Config"
"""What each list is called where it could not be read."""
_KAI = "/apis/scheduling.run.ai"


class QueueResource(Answer):
    """What a queue may have of one resource; -1 stands for no limit, in `quota` too, and what is not said is 0 to KAI.

    Source: KAI v0.17.0 pkg/apis/scheduling/v2/resources.go, docs/queues. GPUs are counted in GPUs, of which fractions
    are parts.
    """

    quota: float = 0
    limit: float = 0
    over_quota_weight: float = Field(default=0, alias="overQuotaWeight")


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

    @property
    def explanations(self) -> list[Explanation]:
        """Why the group can't be placed; empty where nothing stands in its way."""
        own = [Explanation(reason=self.reason, message=self.message)] if self.reason or self.message else []
        return (self.reasons or own) if self.status == "True" else []


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
        return tuple(group.id for group in self.fractional_groups) or tuple(self.gpu_groups)

    @property
    def open(self) -> bool:
        """Whether the scheduler counts the pod's share already; its pod may have been read before it was bound."""
        return self.phase != "Failed"


class Config(Answer):
    """KAI's Config (kai.scheduler/v1), as far as it says which pods and nodes are KAI's; empty where it does not."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    scheduler: str = Field(default="", validation_alias=AliasPath("spec", "global", "schedulerName"))
    reservations: str = Field(
        default="", validation_alias=AliasPath("spec", "binder", "resourceReservation", "namespace")
    )
    pool_label: str = Field(default="", validation_alias=AliasPath("spec", "global", "nodePoolLabelKey"))
    sharing_mode: str = Field(default="", validation_alias=AliasPath("spec", "global", "gpuSharingMode"))
    """From KAI v0.18 on; before that `sharing` says it."""
    sharing: bool | None = Field(default=None, validation_alias=AliasPath("spec", "admission", "gpuSharing"))

    @property
    def shares_no_gpus(self) -> bool:
        """Whether KAI's admission refuses pods with fractions."""
        return self.sharing_mode == "Disabled" or (not self.sharing_mode and self.sharing is False)


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
    configs: tuple[Config, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    @property
    def pool_label(self) -> str:
        """The label of nodes and pods that says their node pool; what has none is the default scheduler's."""
        return next((config.pool_label for config in self._config if config.pool_label), KAI_NODE_POOL)

    @property
    def fractions(self) -> bool:
        """Whether KAI's admission lets pods with fractions through, as far as its Config could be read."""
        return not any(config.shares_no_gpus for config in self._config)

    def of_kai(self, pod: Pod) -> bool:
        """Whether KAI schedules a pod."""
        return pod.scheduler == next((config.scheduler for config in self._config if config.scheduler), SCHEDULER)

    def reserves(self, pod: Pod) -> bool:
        """Whether it is one of the pods with which KAI holds GPUs: it stands for a GPU that others share."""
        place = next((config.reservations for config in self._config if config.reservations), reservation.NAMESPACE)
        return pod.namespace == place and GPU_GROUP in pod.labels

    @property
    def claiming(self) -> tuple[Pod, ...]:
        """The pods that have devices of DRA, which are counted nowhere else."""
        return tuple(pod for pod in self.pods if pod.claims and not pod.ended)

    def request_of(self, pod: Pod) -> PodRequest:
        """What a pod asks for; nobody but KAI reads its annotations.

        Raises:
            RequestError: if KAI's admission would refuse the pod.
        """
        asks = pod if self.of_kai(pod) else pod.model_copy(update={"annotations": {}})
        return pod_request(asks.as_manifest())

    def group_of(self, pod: Pod) -> PodGroup | None:
        """A pod's group, or None."""
        return self._groups.get((pod.namespace, pod.group))

    def bind_request_of(self, pod: Pod) -> BindRequest | None:
        """A pod's bind request, or None."""
        return self._requests.get((pod.namespace, pod.name))

    def queue_of(self, pod: Pod) -> str:
        """A pod's queue: its group's, or what its label says; empty where nothing says one."""
        group = self.group_of(pod)
        return (group.queue if group else "") or pod.labels.get(QUEUE_LABEL, "")

    @cached_property
    def _config(self) -> Sequence[Config]:
        """KAI's own; its name is fixed."""
        return [config for config in self.configs if config.name == "kai-config"]

    @cached_property
    def _groups(self) -> Mapping[tuple[str, str], PodGroup]:
        return {(group.namespace, group.name): group for group in self.pod_groups}

    @cached_property
    def _requests(self) -> Mapping[tuple[str, str], BindRequest]:
        return {(request.namespace, request.pod): request for request in self.bind_requests}


def read_snapshot(cluster: Cluster, namespace: str = "", *, whole: bool = False) -> Snapshot:
    """Read everything, several lists at a time.

    Args:
        cluster: where.
        namespace: whose pods, pod groups and bind requests are read where those of all namespaces may not be.
        whole: whether a list at which the API server fails is an error: for who keeps what he has until he asks again,
            or acts upon it.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
        LoginError: if the login is not accepted.
    """
    with Reader(cluster, whole=whole) as reader:
        nodes = reader.objects(NODES, "/api/v1/nodes", Node)
        pods = reader.objects(PODS, "/api/v1/pods", Pod, namespace=namespace)
        queues = reader.objects(QUEUES, f"{_KAI}/v2/queues", Queue)
        groups = reader.objects(POD_GROUPS, f"{_KAI}/v2alpha2/podgroups", PodGroup, namespace=namespace)
        requests = reader.objects(BIND_REQUESTS, f"{_KAI}/v1alpha2/bindrequests", BindRequest, namespace=namespace)
        configs = reader.objects(CONFIG, "/apis/kai.scheduler/v1/configs", Config)
        return Snapshot(
            taken=datetime.now(UTC),
            nodes=tuple(sorted(nodes(), key=lambda node: node.name)),
            pods=tuple(sorted(pods(), key=lambda pod: (pod.namespace, pod.name))),
            queues=tuple(sorted(queues(), key=lambda queue: queue.name)),
            pod_groups=tuple(sorted(groups(), key=lambda group: (group.namespace, group.name))),
            bind_requests=tuple(sorted(requests(), key=lambda request: (request.namespace, request.name))),
            configs=configs(),
            unseen=tuple(reader.unseen),
        )
