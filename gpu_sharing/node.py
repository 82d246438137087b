"""A node while pods are placed: what fits there, on which GPUs, and what it is charged.

KAI v0.17.0 pkg/scheduler/api/node_info, gpu_sharing and the plugins gpupack and gpuspread.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gpu_sharing.arithmetic import UNLABELLED_MIB, charged_gpus, is_possible, part_mib, portion
from gpu_sharing.model import GpuUse, MigStrategy, Node, NodeUse, Pod, Reason, Strategy, Why
from gpu_sharing.queues import Amounts
from gpu_sharing.request import ComputeMode, FractionShare, GpuShare, MemoryShare, MigSlices, PodRequest, WholeGpus

MILLI = 1000


@dataclass
class _Group:
    mode: ComputeMode
    shares: dict[str, int] = field(default_factory=dict)
    used: int = 0


class NodeState:
    """A node while pods are placed: node_info.go and gpu_sharing_node_info.go."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.mib = UNLABELLED_MIB if node.shared_mib is None else node.shared_mib
        self.idle = node.gpus
        self.whole: list[str] = []
        self.groups: dict[str, _Group] = {}
        self.slices = dict.fromkeys(node.slices, 0)
        self.cpu = Fraction(0)
        self.memory = Fraction(0)
        self._answers: dict[int, tuple[Why | None, bool]] = {}

    def copy(self) -> "NodeState":
        """One of the same node that changes apart from this one."""
        return copy.deepcopy(self, {id(self.node): self.node})

    @property
    def count(self) -> int:
        """GPUs of the node by its label (GetNumberOfGPUsInNode)."""
        return self.node.gpus if self.node.gpu_count is None else self.node.gpu_count

    def asked_mib(self, share: GpuShare) -> int:
        """The MiB that a share takes of each of its GPUs here."""
        return share.mib if isinstance(share, MemoryShare) else part_mib(share.fraction, self.mib)

    def part(self, share: GpuShare) -> float:
        """The part of a GPU that a share is here."""
        return portion(share.mib, self.mib) if isinstance(share, MemoryShare) else share.fraction

    def room(self, share: GpuShare) -> list[str]:
        """The groups with room for a share of one device."""
        share_mib = self.asked_mib(share)
        return [
            name
            for name, group in self.groups.items()
            if group.mode is share.mode and group.used and self.mib - group.used - share_mib >= 0
        ]

    def why_not(self, pod: Pod, kind: int) -> Why | None:
        """Why the pod doesn't fit, but for its queue; None where it does.

        Args:
            pod: it.
            kind: the same number for pods that ask for the same: they get the same answer until one more runs here.
        """
        return self._answer(pod, kind)[0]

    def shares(self, pod: Pod, kind: int) -> bool:
        """Whether a pod that fits can share a GPU that others use already."""
        return self._answer(pod, kind)[1]

    def _answer(self, pod: Pod, kind: int) -> tuple[Why | None, bool]:
        if (answer := self._answers.get(kind)) is None:
            share = pod.request.gpu
            answer = (self._why_not(pod), isinstance(share, GpuShare) and bool(self.room(share)))
            self._answers[kind] = answer
        return answer

    def _why_not(self, pod: Pod) -> Why | None:
        name, request = self.node.name, pod.request
        if pod.may_run_on is not None and name not in pod.may_run_on:
            return Why(Reason.NODE_SELECTION, f"{name} is not a node that it accepts.")
        for short, reason, unit in (
            (self._short_of_cpu, Reason.CPU, "cores"),
            (self._short_of_memory, Reason.MEMORY, "MiB"),
        ):
            if (left := short(request)) is not None:
                return Why(reason, f"{name} has {left} {unit} left for requests of {reason.value}.")
        match request.gpu:
            case None:
                return None
            case WholeGpus(count):
                return self._why_no_gpus(count)
            case MigSlices(slices):
                return self._why_no_slices(slices)
            case MemoryShare() | FractionShare():
                return self._why_no_share(request.gpu)

    def _short_of_cpu(self, request: PodRequest) -> str | None:
        if self.node.cpu is None or self.cpu + request.cpu <= self.node.cpu:
            return None
        return f"{float(self.node.cpu - self.cpu):g}"

    def _short_of_memory(self, request: PodRequest) -> str | None:
        if self.node.memory is None or self.memory + request.memory <= self.node.memory:
            return None
        return str(int(self.node.memory - self.memory) >> 20)

    def _why_no_gpus(self, count: int) -> Why | None:
        name = self.node.name
        if self.node.mig is MigStrategy.MIXED:
            return Why(Reason.MIG_NODE, f"{name} has MIG strategy mixed: only pods that ask for slices run there.")
        if not self.node.gpus:
            return Why(Reason.NO_GPU, f"{name} has no GPU.")
        if count > self.idle:
            return Why(Reason.WHOLE_GPUS, f"{name} has {self.idle} of {self.node.gpus} GPUs that nobody uses.")
        return None

    def _why_no_slices(self, slices: Iterable[tuple[str, int]]) -> Why | None:
        name = self.node.name
        if self.node.mig is None:
            return Why(Reason.NO_MIG_SLICES, f"{name} has no MIG slices.")
        if self.node.mig is MigStrategy.SINGLE:
            return Why(Reason.MIG_NODE, f"{name} has MIG strategy single: only pods with whole GPUs run there.")
        for slice_name, count in slices:
            left = self.node.slices.get(slice_name, 0) - self.slices.get(slice_name, 0)
            if count > left:
                return Why(Reason.NO_MIG_SLICES, f"{name} has {left} {slice_name} left.")
        return None

    def _why_no_share(self, share: GpuShare) -> Why | None:
        name = self.node.name
        if self.node.has_mig:
            return Why(Reason.MIG_NODE, f"{name} has MIG strategy {self.node.mig}: KAI gives no fractions there.")
        if not self.node.gpus:
            return Why(Reason.NO_GPU, f"{name} has no GPU.")
        if isinstance(share, MemoryShare) and self.node.shared_mib is None:
            return Why(Reason.NO_MEMORY_LABEL, f"{name} has no label nvidia.com/gpu.memory.")
        if not is_possible(self.part(share)):
            return Why(Reason.LARGER_THAN_A_GPU, f"a GPU of {name} has {self.mib} MiB.")
        return None if self.idle + len(self.room(share)) >= share.devices else self._why_no_room(share)

    def _why_no_room(self, share: GpuShare) -> Why:
        name = self.node.name
        if share.devices > max(self.node.gpus, self.count):
            return Why(Reason.DEVICES, f"{name} has {self.node.gpus} GPUs, and it asks for {share.devices}.")
        in_other_modes = [group for group in self.groups.values() if group.mode is not share.mode]
        lefts = [self.mib - group.used for group in self.groups.values() if group.mode is share.mode]
        lefts = sorted([*lefts, *[self.mib] * min(self.idle, share.devices)], reverse=True)
        # Each of its GPUs must have so much.
        left = max(lefts[share.devices - 1], 0) if len(lefts) >= share.devices else 0
        on = f"{share.devices} GPUs" if share.devices > 1 else "a GPU"
        modes = f" ({len(in_other_modes)} of its GPUs are used in another compute mode)" if in_other_modes else ""
        return Why(Reason.GPU_MEMORY, f"{name} has at most {left} MiB left on {on}{modes}.")

    def choose_groups(self, share: GpuShare, strategy: Strategy) -> tuple[str, ...]:
        """The groups of a pod that fits, new ones among them (session.go, FittingGPUs; gpupack, gpuspread)."""
        shared = sorted(self.room(share), key=lambda name: self.groups[name].used, reverse=strategy is Strategy.BINPACK)
        taken = len(self.groups)
        new: list[str] = []
        while len(new) < min(self.idle, share.devices):
            taken += 1
            if (name := f"{self.node.name}/{taken}") not in self.groups:
                new.append(name)
        ordered = [*shared, *new] if strategy is Strategy.BINPACK else [*new, *shared]
        return tuple(ordered[: share.devices])

    def add(self, pod: Pod, groups: Sequence[str]) -> None:
        """Count a pod that runs here."""
        self._answers.clear()
        self.cpu += pod.request.cpu
        self.memory += pod.request.memory
        match pod.request.gpu:
            case None:
                pass
            case WholeGpus(count):
                self.idle -= count
                # Whoever names the node himself may ask for more than there are, and the kubelet may be away.
                self.whole += [pod.name] * min(count, max(self.node.gpus, self.count))
            case MigSlices(slices):
                for name, count in slices:
                    self.slices[name] = self.slices.get(name, 0) + count
            case MemoryShare() | FractionShare():
                for group in groups:
                    self._add_share(pod.name, pod.request.gpu, group)

    def _add_share(self, pod: str, share: GpuShare, name: str) -> None:
        share_mib = self.asked_mib(share)
        group = self.groups.setdefault(name, _Group(share.mode))
        group.shares[pod] = share_mib
        group.used += share_mib
        in_use = len(self.whole) + sum(bool(existing.used) for existing in self.groups.values())
        if group.used <= share_mib and self.count < self.idle + in_use:
            self.idle -= 1

    def charged(self, request: PodRequest) -> Amounts:
        """What the queue is charged for a pod that runs here (setAcceptedResources)."""
        match request.gpu:
            case MemoryShare() | FractionShare():
                return amounts_of(request, charged_gpus(self.part(request.gpu), request.gpu.devices))
            case _:
                return amounts_of(request, whole_gpus(request))

    def required(self, request: PodRequest) -> Amounts:
        """What the queue must have left for a pod to run here (GetRequiredInitQuota)."""
        match request.gpu:
            case MemoryShare() | FractionShare():
                return amounts_of(request, request.gpu.devices * portion(self.asked_mib(request.gpu), self.mib))
            case _:
                return amounts_of(request, whole_gpus(request))

    def use(self) -> NodeUse:
        """As it is now."""
        gpus = [
            GpuUse(name, tuple(group.shares.items()), None, self.mib - group.used)
            for name, group in self.groups.items()
            if group.used
        ]
        gpus += [GpuUse("", (), pod, 0) for pod in self.whole]
        idle = max(self.idle, 0)
        return NodeUse(self.node, (*gpus, *[GpuUse("", (), None, self.mib)] * idle), dict(self.slices), self.memory)


def whole_gpus(request: PodRequest) -> float:
    """The GPUs that a request is charged for, but for shares: whole ones, or the compute slices of MIG."""
    match request.gpu:
        case WholeGpus(count):
            return count
        case MigSlices():
            return request.gpu.charged_gpus
        case _:
            return 0


def amounts_of(request: PodRequest, gpus: float) -> Amounts:
    """GPUs, millicpus and bytes."""
    return (gpus, float(request.cpu * MILLI), float(request.memory))
