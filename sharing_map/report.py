"""What `kai-anywhere status` says, as data: the schema of `--json`. Pure."""

from datetime import datetime
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Sharing = Literal["kai", "time-slicing", "mig", "remote", "none"]
"""How a node's GPUs are shared; `remote`: it has none, and what it advertises stands for GPUs of other nodes."""
Use = Literal["shared", "whole", "free", "time-sliced", "mig", "unknown"]
"""What becomes of a GPU; `unknown` where pods could not be read."""

T = TypeVar("T")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fact(_Part, Generic[T]):
    """Something about the cluster, with what proves it."""

    value: T
    proof: str = Field(description="The object and the field that say so.")
    since: datetime | None = Field(
        default=None, description="When it was written; null where the API server does not tell."
    )


class Share(_Part):
    """A pod with a GPU, or a part of one."""

    namespace: str
    name: str
    queue: str | None = Field(description="KAI's queue; null where the pod names none.")
    state: Fact[Literal["running", "starting", "binding", "ending", "unknown"]] = Field(
        description="`binding`: KAI's scheduler has decided, its binder is at it. `ending`: the pod is being deleted. "
        "`unknown`: its node no longer tells."
    )
    kubectl_status: str = Field(
        description="What kubectl says of it, such as `CrashLoopBackOff` of a pod whose `state` is `running`."
    )
    asks: Fact[str] = Field(description="What the pod asks for, in words.")
    mib: int | None = Field(description="MiB that it takes of each of its GPUs; null for other kinds of sharing.")
    gpus: float | None = Field(description="What its queue is charged, in GPUs; null where that is not known.")
    groups: tuple[str, ...] = Field(description="The GPU groups that it is on.")


class Reservation(_Part):
    """The pod that holds a GPU for a GPU group."""

    name: str
    phase: Fact[str]
    kubectl_status: str = Field(
        description="What kubectl says of it, such as `CrashLoopBackOff` of a pod whose `phase` is `Running`."
    )
    waits: str | None = Field(description="Why its container does not run, in the kubelet's words.")
    device: Fact[str | None] = Field(
        description="The GPU's UUID, as the pod told it; its index where only that is known; null: not answered yet."
    )

    @property
    def ended(self) -> bool:
        """Whether it holds its GPU no more."""
        return self.phase.value in {"Succeeded", "Failed"}


class Gpu(_Part):
    """A physical GPU, or what KAI takes for one."""

    use: Use
    group: str | None = Field(description="KAI's name for a shared GPU.")
    reservation: Reservation | None
    total_mib: int | None = Field(description="What KAI shares of it; null where the node has no memory label.")
    taken_mib: int | None
    free_mib: int | None = Field(description="Below 0: pods have been promised more than there is.")
    shares: tuple[Share, ...]

    @property
    def in_use(self) -> bool:
        """Whether KAI counts it as taken: a GPU group that has a reservation pod alone is not."""
        return bool(self.shares)


class NodeStatus(_Part):
    """A node with its GPUs."""

    name: str
    ready: Fact[bool | None] = Field(description="null: the node could not be read, or is gone.")
    cordoned: Fact[bool]
    taints: Fact[tuple[str, ...]] = Field(
        description="Those that keep pods off which do not tolerate them, as kubectl writes them."
    )
    platform: Fact[str | None] = Field(description="`tegra` or `x86`, where a stack labelled the node.")
    architecture: str
    pool: Fact[str | None] = Field(description="Its node pool: KAI places pods of that pool alone there.")
    sharing: Fact[Sharing]
    gpu_count: Fact[int] = Field(description="Physical GPUs.")
    advertised: Fact[int] = Field(
        description="Allocatable `nvidia.com/gpu`; with MIG's strategy `mixed`, slices too, and "
        "`nvidia.com/gpu.shared`."
    )
    memory_label: Fact[str | None] = Field(description="MiB of one GPU, as the label says it.")
    shared_mib: int | None = Field(description="What KAI shares of each GPU: the label, rounded down to 100 MiB.")
    gpus: tuple[Gpu, ...]
    other_pods: tuple[Share, ...] = Field(description="Pods with GPUs of which nothing says which one they have.")
    remarks: tuple[str, ...] = Field(description="What does not fit together.")

    @property
    def can_share_mib(self) -> int | None:
        """What KAI can share of its GPUs together; None where it shares none, or that is not known."""
        if self.sharing.value != "kai" or not self.shared_mib:
            return None
        return self.shared_mib * min(self.gpu_count.value, self.advertised.value)

    @property
    def takes_pods(self) -> bool:
        """Whether KAI places pods here that are in no node pool."""
        is_open = self.ready.value is not False and not self.cordoned.value and not self.pool.value
        return is_open and self.advertised.value > 0

    @property
    def to_tolerate(self) -> tuple[str, ...]:
        """Taints that are worth a word: those of a node that takes no pods at all, or is gone, say nothing more."""
        return self.taints.value if self.ready.value and not self.cordoned.value else ()

    @property
    def has_gpus(self) -> bool:
        """Whether there is anything to show of its GPUs."""
        sliced = self.sharing.value == "time-slicing"
        return bool(self.gpu_count.value or self.gpus or self.other_pods or self.remarks or sliced)


class PendingPod(_Part):
    """A pod that waits: for KAI, or on its node."""

    namespace: str
    name: str
    queue: str | None
    node: str | None = Field(description="Where it waits for its containers; null while it is not scheduled.")
    gated: bool = Field(description="Whether scheduling gates hold it back: no scheduler looks for a node yet.")
    asks: Fact[str] | None = Field(description="null: it asks for no GPU.")
    created: datetime | None
    reasons: tuple[Fact[str], ...] = Field(
        description="What says most first: that the binder is at it, or the words of whoever says why; empty: nobody "
        "does yet."
    )


class QueueStatus(_Part):
    """One of KAI's queues; each stands after the one above it."""

    name: str
    parent: str | None
    depth: int = Field(description="0 for a queue with none above it.")
    quota: Fact[float] = Field(description="GPUs that it is promised; -1 stands for all.")
    limit: Fact[float] = Field(description="GPUs that it may use; -1 stands for all.")
    used: Fact[float | None] = Field(
        description="GPUs that its pods and those of queues below come to, as KAI charges them; null where pods or "
        "nodes could not be read."
    )
    reported: Fact[float | None] = Field(description="GPUs in use, as KAI's queue controller says.")
    difference: str | None = Field(description="What `used` and `reported` do not agree in.")
    unexplained: float | None = Field(
        description="GPUs that `used` is more than `reported`, beyond what the queue controller counts otherwise; null "
        "where `used` is."
    )
    pods: int | None = Field(description="null where pods could not be read; so is `pending`.")
    pending: int | None


class Summary(_Part):
    """The cluster in numbers; GPU memory counts where KAI shares it."""

    nodes: int | None = Field(description="This and all to `largest_free_mib` is null where nodes could not be read.")
    gpu_nodes: int | None
    gpus: int | None = Field(description="Physical GPUs.")
    shared_mib: int | None = Field(description="What KAI can share.")
    taken_mib: int | None = Field(description="This and all below is null where pods could not be read.")
    free_mib: int | None
    unavailable_mib: int | None = Field(
        description="Free on nodes that are cordoned, not ready or in a node pool, or advertise no GPU."
    )
    largest_free_mib: int | None = Field(description="The most that one more pod could get of one GPU.")
    shares: int | None = Field(description="Pods that have a GPU or a part of one.")
    claiming: int | None = Field(description="Pods with claims of DRA; where these are GPUs, they count nowhere else.")
    pending: int | None


class Unreadable(_Part):
    """What could not be read; facts about it are missing."""

    what: str
    why: str


class Status(_Part):
    """The sharing map of a cluster at one moment."""

    schema_version: Literal["kai-anywhere.io/status/v1"] = "kai-anywhere.io/status/v1"
    taken: datetime = Field(description="When the cluster was read; ages count from here.")
    context: str
    server: str
    simulated: bool = Field(description="Whether the cluster is a stack's simulator.")
    summary: Summary
    nodes: tuple[NodeStatus, ...]
    pending: tuple[PendingPod, ...]
    queues: tuple[QueueStatus, ...]
    unseen: tuple[Unreadable, ...]
