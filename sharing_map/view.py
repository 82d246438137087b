"""What was read of a cluster, by what the sharing map asks of it: who uses or wants a GPU, and in which words. Pure."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Literal

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.pending import kubectl_says
from cluster.snapshot import NODES, PODS, BindRequest, Snapshot
from gpu_sharing.arithmetic import charged_gpus, part_mib, portion, read_label, shared_mib
from gpu_sharing.request import (
    GPU,
    GPU_FRACTION,
    GPU_MEMORY,
    TIME_SLICE,
    FractionShare,
    GpuRequest,
    MemoryShare,
    MigSlices,
    RequestError,
    WholeGpus,
    gpu_groups,
)
from manifests.node_labels import GPU_MEMORY as MEMORY_LABEL
from sharing_map.report import Fact, Share

State = Literal["running", "starting", "binding", "ending", "unknown"]


@dataclass(frozen=True)
class User:
    """A pod that asks for GPUs.

    Attributes:
        pod: it.
        request: what it asks for; None where KAI's admission would refuse it.
        problem: why, where it can't be read.
        node: where it is, or where KAI's binder is about to put it; empty while it is not scheduled.
        groups: the GPU groups that it is on.
        binding: the bind request that says so, where the pod itself does not yet.
        queue: KAI's queue; None where another scheduler has the pod.
    """

    pod: Pod
    request: GpuRequest | None
    problem: str
    node: str
    groups: tuple[str, ...]
    binding: BindRequest | None
    queue: str | None

    @property
    def where(self) -> str:
        """The pod, as proofs name it."""
        return pod_name(self.pod)


@dataclass
class View:
    """The snapshot, by what is asked of it.

    Attributes:
        snapshot: it.
        nodes: by name.
        users: pods that ask for GPUs and have not ended.
        idle: KAI's pods that ask for none.
        pods_of: the users of each node.
        reservations: the reservation pods of each node. KAI takes one that has ended for one that is there, and makes
            no other.
        knows_nodes: whether nodes could be read; one that is not there is gone then.
        knows_pods: whether pods could be read; nothing is known to be free otherwise.
    """

    snapshot: Snapshot
    nodes: dict[str, Node]
    knows_nodes: bool
    knows_pods: bool
    users: list[User] = field(default_factory=list)
    idle: list[User] = field(default_factory=list)
    pods_of: dict[str, list[User]] = field(default_factory=lambda: defaultdict(list))
    reservations: dict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, snapshot: Snapshot) -> "View":
        """Everything of a snapshot but workloads that have ended, and what has nothing to do with GPUs and KAI."""
        nodes = {node.name: node for node in snapshot.nodes}
        unseen = {unread.what for unread in snapshot.unseen}
        view = cls(snapshot, nodes, NODES not in unseen, PODS not in unseen)
        for pod in snapshot.pods:
            if not pod.ended or snapshot.reserves(pod):
                view._add(pod)
        return view

    def _add(self, pod: Pod) -> None:
        if self.snapshot.reserves(pod):
            self.reservations[pod.node].append(pod)
            return
        try:
            request, problem = self.snapshot.request_of(pod).gpu, ""
        except RequestError as error:
            request, problem = None, str(error)
        has_slices = pod.time_slices > 0
        if request is None and not has_slices and not self.snapshot.of_kai(pod):
            return
        bind_request = self.snapshot.bind_request_of(pod)
        binding = bind_request if bind_request is not None and bind_request.open and not pod.node else None
        user = User(
            pod=pod,
            request=request,
            problem=problem,
            node=pod.node or (binding.node if binding else ""),
            # The binder labels the pod group by group, and may leave a label behind where it failed.
            groups=(binding.groups if binding else ()) or gpu_groups(pod.as_manifest()),
            binding=binding,
            # A label alone makes no pod one of a queue.
            queue=(self.snapshot.queue_of(pod) or None) if self.snapshot.of_kai(pod) else None,
        )
        if request is None and not problem and not has_slices:
            self.idle.append(user)
            return
        self.users.append(user)
        if user.node:
            self.pods_of[user.node].append(user)

    def shared_mib(self, node: str) -> int | None:
        """What KAI shares of each GPU of a node."""
        live = self.nodes.get(node)
        label = read_label(live.labels.get(MEMORY_LABEL)) if live else None
        return None if label is None else shared_mib(label)


def pod_name(pod: Pod) -> str:
    """A pod, as proofs name it."""
    return f"Pod {pod.namespace}/{pod.name}"


def share(user: User, shared: int | None) -> Share:
    """A pod's share of GPUs of which KAI shares so many MiB each."""
    return Share(
        namespace=user.pod.namespace,
        name=user.pod.name,
        queue=user.queue,
        state=state(user),
        kubectl_status=kubectl_says(user.pod),
        asks=asks(user),
        mib=mib_of(user.request, shared),
        gpus=charged(user.request, shared),
        groups=user.groups,
    )


def state(user: User) -> Fact[State]:
    """How far the pod has come."""
    pod = user.pod
    if pod.deleted is not None:
        return Fact[State](value="ending", proof=f"{user.where} metadata.deletionTimestamp", since=pod.deleted)
    if user.binding is not None:
        request = user.binding
        where = f"BindRequest {request.namespace}/{request.name} spec.selectedNode"
        return Fact[State](value="binding", proof=where, since=request.created)
    if pod.phase == "Running":
        since = pod.since("Ready") or pod.since("PodScheduled")
        return Fact[State](value="running", proof=f"{user.where} status.phase", since=since)
    if pod.phase == "Unknown":
        return Fact[State](value="unknown", proof=f"{user.where} status.phase")
    return Fact[State](value="starting", proof=f"{user.where} spec.nodeName", since=pod.since("PodScheduled"))


def asks(user: User) -> Fact[str]:
    """What a pod asks for, in words."""
    pod, request = user.pod, user.request
    words = f"what KAI can't read: {user.problem}"
    annotation = GPU_FRACTION if isinstance(request, FractionShare) else GPU_MEMORY
    field_ = f"metadata.annotations[{annotation}]" if annotation in pod.annotations else "metadata.annotations"
    match request:
        case MemoryShare(mib=mib, devices=devices):
            words = f"{mib} MiB" if devices == 1 else f"{mib} MiB of {devices} GPUs each"
        case FractionShare(fraction=fraction, devices=devices):
            words = f"{fraction:g} of a GPU" if devices == 1 else f"{fraction:g} of {devices} GPUs each"
        case WholeGpus(count=count):
            words, field_ = (f"{count} GPU" if count == 1 else f"{count} GPUs"), f"spec.containers: {GPU}"
        case MigSlices(slices=slices):
            words = ", ".join(f"{amount} {name}" for name, amount in slices)
            field_ = "spec.containers"
        case None if not user.problem and pod.time_slices:
            words, field_ = f"{pod.time_slices} {TIME_SLICE}", "spec.containers"
        case None:
            pass
    return Fact(value=words, proof=f"{user.where} {field_}", since=pod.metadata_writes.get(annotation) or pod.created)


def mib_of(request: GpuRequest | None, shared: int | None) -> int | None:
    """What a request takes of each of its GPUs."""
    match request:
        case MemoryShare(mib=mib):
            return mib
        case FractionShare(fraction=fraction):
            return None if shared is None else part_mib(fraction, shared)
        case _:
            return None


def charged(request: GpuRequest | None, shared: int | None) -> float | None:
    """What the pod's queue is charged, in GPUs; None where that is not known."""
    match request:
        case MemoryShare(mib=mib, devices=devices):
            return charged_gpus(portion(mib, shared), devices) if shared else None
        case FractionShare(fraction=fraction, devices=devices):
            return charged_gpus(fraction, devices)
        case WholeGpus(count=count):
            return float(count)
        case MigSlices():
            return float(request.charged_gpus)
        case None:
            return None


def counted(request: GpuRequest | None, shared: int | None) -> float:
    """What KAI's queue controller counts for a pod, but for rounding (KAI v0.17.0 pkg/podgroupcontroller).

    A share counts once, on however many GPUs it is, and MIG slices are no GPUs there.
    """
    match request:
        case MemoryShare() | FractionShare():
            return charged(replace(request, devices=1), shared) or 0.0
        case MigSlices():
            return 0.0
        case _:
            return charged(request, shared) or 0.0
