"""What a plan says, for people and for programs. Pure."""

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from cluster.preflight.unified_memory import REMEDY, sold_twice
from gpu_sharing.model import MOST_GPUS, GpuUse, NodeUse, Packing, Pod, Reason, Workload
from gpu_sharing.nearest import nearest
from gpu_sharing.placement import place
from gpu_sharing.reasons import describe
from gpu_sharing.request import FractionShare, GpuShare, MemoryShare
from manifests.wording import first_of
from operations.exit_status import ExitStatus
from operations.plain_text import PlainText
from operations.plan.machines import Machine, Scene
from operations.status.words import clean

_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
_FREE = "."
_BAR = 60
_LEAST_BAR = 16
"""In a narrow terminal; what is said of the GPU then stands below."""
_WIDTH = 120
_NAMES = 6
"""Pods that are named where many wait for the same reason."""
_SEARCHED_PODS = 2000
"""Of many workloads that wait only the first are searched, so many that a round of all searches places this many pods.

A search has some 17 rounds, and each places all pods."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ShareReport(_Answer):
    """A pod's part of a GPU."""

    pod: str
    mib: int


class GpuReport(_Answer):
    """One GPU."""

    group: str | None = Field(description="KAI's GPU group; null where the GPU is idle or one pod has all of it.")
    shares: list[ShareReport]
    whole: str | None = Field(description="The pod that has all of the GPU.")
    free_mib: int


class SystemMemoryReport(_Answer):
    """The second column of a machine with unified memory: what the kubelet gives away of the same bytes."""

    gpu_mib: int = Field(description="What KAI may give away: the label nvidia.com/gpu.memory.")
    requests_mib: int = Field(description="Memory that the node's pods, with those of the plan, ask of the system.")
    machine_mib: int | None = Field(description="All of its memory (MemTotal); null where it is not known.")


class NodeReport(_Answer):
    """A node."""

    name: str
    label_mib: int | None = Field(description="Its label nvidia.com/gpu.memory; null where KAI can't read it.")
    shared_mib: int | None = Field(description="What KAI shares of each GPU: the label, rounded down to hundreds.")
    fractions: bool = Field(
        description="Whether KAI gives fractions of its GPUs: not where they have MIG slices or stand for remote ones."
    )
    gpus: list[GpuReport]
    slices: dict[str, int] = Field(description="MIG slices in use, by resource.")
    system_memory: SystemMemoryReport | None = Field(description="Of machines with unified memory only.")


class PodReport(_Answer):
    """A pod of the plan."""

    name: str
    asks: str
    queue: str | None
    node: str | None = Field(description="Where it runs; null where it stays Pending.")
    groups: list[str] = Field(description="The GPU groups that it shares.")
    reason: Reason | None = Field(description="Why it stays Pending; null where it runs.")
    why: str | None = Field(description="The same as a sentence.")


class NearestReport(_Answer):
    """The largest request with which all pods of a workload run."""

    pods: list[str]
    request_mib: int | None = Field(description="For gpu-memory; null where the pods ask by fraction.")
    fraction: float | None = Field(description="For gpu-fraction; null where the pods ask by memory.")


class PlanReport(_Answer):
    """The whole answer, as `--json` prints it."""

    running: int = Field(description="Pods that run.")
    pending: int = Field(description="Pods that stay Pending.")
    nodes: list[NodeReport]
    pods: list[PodReport]
    nearest: list[NearestReport] = Field(description="For workloads with Pending pods, where a smaller request helps.")
    warnings: list[str] = Field(
        description="What is wrong with the cluster or the plan, or could not be read: the exit status is 4."
    )
    remarks: list[str] = Field(description="What the plan does not look at, or left out.")


def plan(scene: Scene, workloads: Sequence[Workload]) -> PlanReport:
    """Place the workloads, and say what came of it.

    Args:
        scene: nodes, queues, and what is there already.
        workloads: what is asked for.
    """
    nodes = [machine.node for machine in scene.machines]

    def packed(requested: Sequence[Workload]) -> Packing:
        return place(nodes, [*scene.workloads, *requested], scene.queues, scene.strategy)

    packing = packed(workloads)
    machines = {machine.node.name: machine for machine in scene.machines}
    uses = [_node(use, machines[use.node.name]) for use in packing.nodes]
    queues = {pod.name: workload.queue for workload in [*scene.workloads, *workloads] for pod in workload.pods}
    counted = {pod.name for pod in _counted(scene, workloads)}
    placed = [
        _placed(placement.pod, placement.node, placement.groups, queues)
        for placement in packing.placed
        if placement.pod.name in counted
    ]
    pending = [
        PodReport(
            name=unplaced.pod.name,
            asks=describe(unplaced.pod.request),
            queue=queues[unplaced.pod.name],
            node=None,
            groups=[],
            reason=unplaced.why.reason,
            why=unplaced.why.text,
        )
        for unplaced in packing.pending
    ]
    waiting = _waiting(packing, workloads)
    searched = max(1, _SEARCHED_PODS // len(queues)) if queues else 0
    return PlanReport(
        running=len(placed),
        pending=len(pending),
        nodes=uses,
        pods=[*placed, *pending],
        nearest=list(_nearest(waiting[:searched], workloads, packed)),
        warnings=[*scene.warnings, *_warnings(packing, uses)],
        remarks=[*scene.remarks, *_not_searched(waiting[searched:])],
    )


def _counted(scene: Scene, workloads: Sequence[Workload]) -> Iterable[Pod]:
    """The pods that the answer is about: all that are asked for, and of those that are there the ones with a GPU."""
    for workload in workloads:
        yield from workload.pods
    for workload in scene.workloads:
        yield from (pod for pod in workload.pods if pod.request.gpu is not None or pod.node is None)


def _placed(pod: Pod, node: str, groups: Sequence[str], queues: Mapping[str, str | None]) -> PodReport:
    return PodReport(
        name=pod.name,
        asks=describe(pod.request),
        queue=queues[pod.name],
        node=node,
        groups=list(groups),
        reason=None,
        why=None,
    )


def _node(use: NodeUse, machine: Machine) -> NodeReport:
    system = None
    if machine.unified:
        system = SystemMemoryReport(
            gpu_mib=(machine.label_mib or 0) * max(use.node.gpus, 1),
            requests_mib=-(-use.memory // (1 << 20)),
            machine_mib=machine.memory_mib,
        )
    return NodeReport(
        name=use.node.name,
        label_mib=machine.label_mib,
        shared_mib=use.node.shared_mib,
        fractions=not (use.node.has_mig or machine.is_frontend),
        gpus=[_gpu(gpu) for gpu in use.gpus],
        slices={name: count for name, count in use.slices.items() if count},
        system_memory=system,
    )


def _gpu(gpu: GpuUse) -> GpuReport:
    return GpuReport(
        group=gpu.group or None,
        shares=[ShareReport(pod=pod, mib=mib) for pod, mib in gpu.shares],
        whole=gpu.whole,
        free_mib=gpu.free_mib,
    )


def _waiting(packing: Packing, workloads: Sequence[Workload]) -> list[tuple[int, GpuShare]]:
    """The places of the workloads that wait for a share, and what they ask for."""
    waiting = {unplaced.pod.name for unplaced in packing.pending}
    return [
        (index, share)
        for index, workload in enumerate(workloads)
        if any(pod.name in waiting for pod in workload.pods)
        and isinstance(share := workload.pods[0].request.gpu, GpuShare)
    ]


def _not_searched(left: Sequence[tuple[int, GpuShare]]) -> Iterable[str]:
    if left:
        yield f"The nearest request of {len(left)} more workloads that wait was not searched: plan fewer at once."


def _nearest(
    searched: Sequence[tuple[int, GpuShare]],
    workloads: Sequence[Workload],
    packed: Callable[[Sequence[Workload]], Packing],
) -> Iterable[NearestReport]:
    for index, share in searched:
        workload = workloads[index]
        names = {pod.name for pod in workload.pods}

        def runs(
            smaller: GpuShare, *, index: int = index, workload: Workload = workload, names: set[str] = names
        ) -> bool:
            pods = tuple(replace(pod, request=replace(pod.request, gpu=smaller)) for pod in workload.pods)
            changed = [*workloads[:index], replace(workload, pods=pods), *workloads[index + 1 :]]
            return not any(unplaced.pod.name in names for unplaced in packed(changed).pending)

        match nearest(share, runs):
            case MemoryShare(mib):
                yield NearestReport(pods=[pod.name for pod in workload.pods], request_mib=mib, fraction=None)
            case FractionShare(fraction):
                yield NearestReport(pods=[pod.name for pod in workload.pods], request_mib=None, fraction=fraction)
            case None:
                pass


def _warnings(packing: Packing, nodes: Sequence[NodeReport]) -> Iterable[str]:
    for use in packing.nodes:
        node = use.node
        oversold = [gpu for gpu in use.gpus if gpu.free_mib < 0]
        if oversold and node.shared_mib is None:
            yield (
                f"{node.name} has no label nvidia.com/gpu.memory that KAI can read, and pods share its GPUs: no pod "
                "with gpu-memory is placed there until the label is back."
            )
        elif oversold:
            yield (
                f"{node.name}: pods have {-oversold[0].free_mib} MiB more than a GPU has. KAI takes a request of whole "
                "multiples of a GPU's memory for one GPU: ask for less."
            )
        if node.gpu_count is not None and node.gpu_count != node.gpus > 0 and node.mig is None:
            gpus, count = (f"{number}{' or more' * (number == MOST_GPUS)}" for number in (node.gpus, node.gpu_count))
            yield (
                f"{node.name} has {gpus} allocatable nvidia.com/gpu and the label nvidia.com/gpu.count={count}: "
                "KAI gives the memory of the same GPU away more than once. Both should be the number of GPUs."
            )
    for report in nodes:
        system = report.system_memory
        if system is None or system.machine_mib is None:
            continue
        if what := sold_twice(report.name, system.gpu_mib, system.requests_mib, system.machine_mib):
            yield f"{what} {REMEDY}"


def status(report: PlanReport, *, require_all: bool) -> ExitStatus:
    """The command's exit status."""
    if require_all and report.pending:
        return ExitStatus.FAILED
    return ExitStatus.WARNINGS if report.warnings else ExitStatus.WELL


def text(report: PlanReport, columns: int | None = None) -> str:
    """The plan as a picture.

    Args:
        report: the plan.
        columns: of the terminal; None elsewhere.
    """
    console = PlainText(_WIDTH)
    total = report.running + report.pending
    console.print(f"{report.running} of {total} pods run, {report.pending} Pending.")
    for node in report.nodes:
        console.print(f"\n{_headline(node)}")
        for number, gpu in enumerate(node.gpus, 1):
            if not node.fractions and gpu.whole is None:
                continue
            for line in _picture(number, gpu, columns, is_known=node.shared_mib is not None):
                console.print(f"  {line}", soft_wrap=True)
        for name, count in node.slices.items():
            console.print(f"  {count} {name} in use")
        if node.system_memory:
            console.print(f"  {_second_column(node.system_memory)}", soft_wrap=True)
    for heading, lines in (
        ("Pending", _why(report.pods)),
        ("Nearest request that fits", [_fitting(request) for request in report.nearest]),
        ("Warnings", report.warnings),
        ("Remarks", report.remarks),
    ):
        if lines:
            console.print(f"\n{heading}")
            for line in lines:
                console.print(f"  {clean(line)}", soft_wrap=True)
    return console.text.rstrip()


def _headline(node: NodeReport) -> str:
    if not node.fractions:
        return f"{node.name}: KAI gives no fractions there"
    if node.shared_mib is None:
        return f"{node.name}: no label nvidia.com/gpu.memory"
    return f"{node.name}: gpu.memory {node.label_mib} MiB, KAI shares {node.shared_mib} of each GPU"


def _picture(number: int, gpu: GpuReport, columns: int | None, *, is_known: bool) -> Iterable[str]:
    used = sum(share.mib for share in gpu.shares)
    # Without a label KAI counts with 100 MiB: no number for people.
    memory = f"{used} MiB used, {gpu.free_mib} free" if is_known else "memory not known"
    says = f"all of it: {gpu.whole}" if gpu.whole is not None else memory
    left = _BAR if columns is None else columns - len(f"  GPU {number} || {says}")
    width = max(_LEAST_BAR, min(_BAR, left))
    letters = [_LETTERS[index % len(_LETTERS)] for index in range(len(gpu.shares))]
    if gpu.whole is not None:
        bar = "#" * width
    else:
        bar, end, total = "", 0, max(used + gpu.free_mib, 1)
        for letter, share in zip(letters, gpu.shares, strict=True):
            end += share.mib
            bar += letter * (min(round(end * width / total), width) - len(bar))
    yield f"GPU {number} |{bar.ljust(width, _FREE)}|" + (f" {says}" if left >= width else "")
    if left < width:
        yield f"       {says}"
    if gpu.whole is not None:
        return
    shares = [
        f"{letter} {share.pod}{f' {share.mib}' if is_known else ''}"
        for letter, share in zip(letters, gpu.shares, strict=True)
    ]
    for start in range(0, len(shares), _NAMES // 2):
        yield "       " + "   ".join(shares[start : start + _NAMES // 2])


def _second_column(system: SystemMemoryReport) -> str:
    is_known = system.machine_mib is not None
    machine = f"the machine has {system.machine_mib} MiB" if is_known else "how much the machine has is not known"
    return (
        f"Unified memory: KAI may give away {system.gpu_mib} MiB, pods request {system.requests_mib} MiB of the "
        f"system; {machine}."
    )


def _why(pods: Sequence[PodReport]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for pod in pods:
        if pod.why is not None:
            by_reason.setdefault(pod.why, []).append(pod.name)
    return [
        f"{_names(names)}: {why if len(names) == 1 else why.replace('It asks', 'Each asks', 1)}"
        for why, names in by_reason.items()
    ]


def _names(names: Sequence[str]) -> str:
    return first_of(names, _NAMES)


def _fitting(request: NearestReport) -> str:
    annotation = (
        f'gpu-memory: "{request.request_mib}"' if request.request_mib else f'gpu-fraction: "{request.fraction:g}"'
    )
    if len(request.pods) == 1:
        return f"{request.pods[0]} runs with {annotation}"
    return f"{_names(request.pods)} all run with {annotation}"
