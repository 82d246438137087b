"""What a cluster has: its nodes, the pods that run and wait, and KAI's queues."""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from cluster.access.answers.nodes import Node as LiveNode
from cluster.access.answers.pods import Pod as LivePod
from cluster.preflight.sharing import shares_memory
from cluster.snapshot import NODES, POD_GROUPS, PODS, QUEUES, PodGroup, Snapshot
from cluster.snapshot import Queue as LiveQueue
from config.stack import StackSettings
from gpu_sharing.arithmetic import read_label, shared_mib
from gpu_sharing.model import Node, Pod, Strategy, Workload
from gpu_sharing.quantities import ImpossibleError, quantity
from gpu_sharing.queues import Queue
from gpu_sharing.request import TIME_SLICE, RequestError, gpu_groups
from manifests.kai import PRIORITY_CLASSES
from manifests.node_labels import GPU_MEMORY, PLATFORM, PLATFORM_TEGRA
from manifests.wording import first_of
from operations.errors import OperationError
from operations.plan.machines import Machine, Scene, in_bytes
from operations.plan.workloads import TRAIN, accepted, is_preemptible
from operations.status.words import count, not_counted


def scene_of_cluster(snapshot: Snapshot, settings: StackSettings | None, placement: Strategy | None) -> Scene:
    """What is there.

    Args:
        snapshot: of the cluster.
        settings: of the stack, where one was named: they say which GPUs share their node's memory.
        placement: how KAI fills GPUs; without it what the stack says, or KAI's default.

    Raises:
        OperationError: if the nodes or pods could not be read.
    """
    for unseen in snapshot.unseen:
        if unseen.what in {NODES, PODS}:
            raise OperationError(f"The cluster's {unseen.what} can't be read: {unseen.why}")
    remarks = [not_counted(len(snapshot.claiming))] if snapshot.claiming else []
    platform = settings.platform if settings else None
    unified = {*platform.jetsons, *platform.unified_memory_nodes} if platform else set()
    machines = []
    tainted: dict[str, list[str]] = {}
    for node in snapshot.nodes:
        if not node.devices and GPU_MEMORY not in node.labels and not node.slices:
            continue
        if node.time_slices and not node.gpus:
            remarks.append(f"{node.name} is left out: it is time-sliced as {TIME_SLICE}, which is no GPU to KAI.")
            continue
        if pool := node.labels.get(snapshot.pool_label):
            remarks.append(f"{node.name} is left out: it is in the node pool '{pool}'.")
            continue
        if node.unschedulable or node.conditions.get("Ready", "True") != "True":
            # Kubernetes gives such a node a taint, so that no pod of the plan gets there.
            remarks.append(
                f"{node.name} is {'cordoned' if node.unschedulable else 'not Ready'}: nothing is placed there."
            )
        elif node.keeps_off:
            tainted.setdefault(", ".join(node.keeps_off), []).append(node.name)
        if node.devices and not node.gpus:
            remarks.append(f"{node.name} gets pods with remote GPUs alone: it is a frontend of them.")
        machines.append(_machine(node, unified))
    remarks += [
        f"Only pods that tolerate {taints} are placed on {first_of(names)}." for taints, names in tainted.items()
    ]
    read = _Pods(snapshot, machines)
    strategy = Strategy(settings.kai.scheduler.placement.value) if settings else Strategy.BINPACK
    return Scene(
        tuple(machines),
        tuple(_queue(queue) for queue in snapshot.queues),
        placement or strategy,
        tuple(read.workloads()),
        fractions=snapshot.fractions,
        remarks=(*remarks, *read.remarks),
        warnings=tuple(f"{unseen.what} could not be read: {unseen.why}" for unseen in snapshot.unseen),
    )


def _machine(node: LiveNode, unified: Collection[str]) -> Machine:
    memory = read_label(node.labels.get(GPU_MEMORY))
    return Machine(
        Node(
            node.name,
            None if memory is None else shared_mib(memory),
            node.usable_gpus or node.devices,
            node.gpu_count,
            node.slices,
            node.mig,
            _allocatable(node, "cpu"),
            _allocatable(node, "memory"),
        ),
        memory,
        node.labels,
        all_labels=True,
        taints=node.taints,
        unified=node.name in unified or node.labels.get(PLATFORM) == PLATFORM_TEGRA or shares_memory(node) is not None,
        memory_mib=node.memory_mib or None,
    )


def _allocatable(node: LiveNode, resource: str) -> Fraction | None:
    """What pods may have of it; None where the kubelet does not say it, or says what no machine has."""
    try:
        return quantity(node.allocatable[resource])
    except (KeyError, ImpossibleError):
        return None


def _queue(queue: LiveQueue) -> Queue:
    gpu, cpu, memory = queue.gpu, queue.cpu, queue.memory
    return Queue(
        queue.name,
        queue.parent or None,
        queue.priority,
        quota=in_bytes(gpu.quota, cpu.quota, memory.quota),
        limit=in_bytes(gpu.limit, cpu.limit, memory.limit),
        weight=(gpu.over_quota_weight, cpu.over_quota_weight, memory.over_quota_weight),
    )


@dataclass
class _Pods:
    """The pods of a cluster, as KAI groups them.

    Attributes:
        snapshot: of the cluster.
        machines: the nodes.
        remarks: what a person should know.
    """

    snapshot: Snapshot
    machines: list[Machine]
    remarks: list[str] = field(default_factory=list)
    _accepted: dict[str, frozenset[str] | None] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)
    _insisting: int = 0

    @cached_property
    def _unseen(self) -> Collection[str]:
        return {unseen.what for unseen in self.snapshot.unseen}

    def workloads(self) -> Iterator[Workload]:
        """In the order of their creation; who runs comes with its place."""
        members: dict[tuple[str, str], list[LivePod]] = {}
        for pod in sorted(self.snapshot.pods, key=lambda pod: (str(pod.created or ""), pod.namespace, pod.name)):
            if not pod.ended:
                group = pod.group if self.snapshot.of_kai(pod) else ""
                members.setdefault((pod.namespace, group or f"pod/{pod.name}"), []).append(pod)
        for pods in members.values():
            planned = [read for pod in pods if (read := self._pod(pod)) is not None]
            if planned:
                yield self._workload(self.snapshot.group_of(pods[0]), pods[0], planned)
        if self._insisting:
            who = f"{count(self._insisting, 'pod')} that {'waits' if self._insisting == 1 else 'wait'}"
            self.remarks.append(f"Of {who} a required affinity is not looked at.")

    def _workload(self, group: PodGroup | None, pod: LivePod, planned: list[Pod]) -> Workload:
        of_kai = self.snapshot.of_kai(pod)
        if not of_kai or group is None:
            waits = of_kai and any(planned_pod.node is None for planned_pod in planned)
            if waits and POD_GROUPS not in self._unseen:
                self.remarks.append(f"{planned[0].name}: KAI has made no pod group of it yet, so no queue is kept to.")
            return Workload(tuple(planned))
        priority = self._priority(group.priority_class, pod)
        return Workload(
            tuple(planned),
            # A queue that may not be read is no queue that is missing.
            (group.queue or None) if QUEUES not in self._unseen else None,
            priority,
            is_preemptible(group.preemptibility, priority),
            group.min_member,
        )

    def _priority(self, name: str, pod: LivePod) -> int:
        """Of a group's PriorityClass: one of KAI's, or the one that its pods have too."""
        if name and name not in PRIORITY_CLASSES and pod.priority_class == name and pod.priority is not None:
            return pod.priority
        if name and name not in PRIORITY_CLASSES and name not in self._unknown:
            self._unknown.add(name)
            self.remarks.append(f"PriorityClass {name} is not one of KAI's: pods in groups of it count as {TRAIN}.")
        return PRIORITY_CLASSES.get(name, PRIORITY_CLASSES[TRAIN])

    def _pod(self, pod: LivePod) -> Pod | None:
        """A pod with its place; None where it is of no concern: what does not wait for KAI, or for no GPU."""
        name = pod.name if pod.namespace == "default" else f"{pod.namespace}/{pod.name}"
        node, groups = self._place(pod)
        if node is None and not (self.snapshot.of_kai(pod) and pod.may_be_placed):
            return None
        try:
            request = self.snapshot.request_of(pod)
        except RequestError as error:
            self.remarks.append(f"{name} is left out: {error}")
            return None
        if node is None and request.gpu is None:
            return None
        if node is None and (pool := pod.labels.get(self.snapshot.pool_label)):
            self.remarks.append(f"{name} is left out: it is in the node pool '{pool}'.")
            return None
        if self.snapshot.reserves(pod):
            # Those that share its GPU are counted.
            request = replace(request, gpu=None)
        self._insisting += node is None and pod.insists_on_nodes
        # Who runs is not placed anew.
        return Pod(name, request, self._may_run_on(pod) if node is None else None, node, groups)

    def _may_run_on(self, pod: LivePod) -> frozenset[str] | None:
        """The nodes that a pod accepts; many pods say the same of them, and there are many nodes."""
        constraints = json.dumps([pod.node_selector, pod.tolerations], sort_keys=True)
        if constraints not in self._accepted:
            self._accepted[constraints], _ = accepted(pod.node_selector, pod.tolerations, self.machines)
        return self._accepted[constraints]

    def _place(self, pod: LivePod) -> tuple[str | None, tuple[str, ...]]:
        """Where a pod runs, or is about to be bound."""
        groups = gpu_groups(pod.as_manifest())
        if pod.node:
            return pod.node, groups
        request = self.snapshot.bind_request_of(pod)
        # The binder labels the pod group by group, and may leave a label behind where it failed.
        return (request.node or None, request.groups or groups) if request and request.open else (None, ())
