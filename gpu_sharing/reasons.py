"""Why pods stay Pending, in sentences."""

from collections.abc import Sequence

from gpu_sharing.model import Pod, Reason, Why
from gpu_sharing.queues import Objection
from gpu_sharing.request import FractionShare, MemoryShare, MigSlices, PodRequest, WholeGpus


def queue_full(over: Objection) -> Why:
    """Why a queue has no room."""
    used, allowed, more = (f"{round(amount, 2):g}" for amount in (over.used, over.allowed, over.requested))
    usage = f"uses {used} of {allowed} {over.resource} and would get {more} more"
    if over.over_quota:
        text = (
            f"Queue '{over.queue}' {usage}: what may not be interrupted must keep to the quota. Raise it, or give the "
            "workload the label priorityClassName: train."
        )
        return Why(Reason.QUEUE_QUOTA, text)
    return Why(Reason.QUEUE_LIMIT, f"Queue '{over.queue}' {usage}, which is over its limit. Raise it, or ask for less.")


_TELLING = (
    Reason.GPU_MEMORY,
    Reason.WHOLE_GPUS,
    Reason.QUEUE_LIMIT,
    Reason.QUEUE_QUOTA,
    Reason.MEMORY,
    Reason.CPU,
    Reason.LARGER_THAN_A_GPU,
    Reason.DEVICES,
    Reason.NO_MIG_SLICES,
    Reason.MIG_NODE,
    Reason.NO_MEMORY_LABEL,
    Reason.NODE_SELECTION,
    Reason.NO_GPU,
)
"""What says most about why no node has room, first."""


def most_telling(pod: Pod, reasons: Sequence[Why]) -> Why:
    """What is nearest to having room: that is what a person can change."""
    if not reasons:
        return Why(Reason.NO_NODES, "There is no node that KAI schedules on.")
    reason = min((why.reason for why in reasons), key=_TELLING.index)
    same = sorted({why.text for why in reasons if why.reason is reason})
    others = len(same) - 1
    more = f" {others} more node{'s' * (others > 1)} likewise." if others else ""
    description = describe(pod.request)
    if reason in {Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA}:
        return Why(reason, same[0])
    return Why(reason, f"It asks for {description}; {same[0]}{more}")


def describe(request: PodRequest) -> str:
    """A request, for a message."""
    match request.gpu:
        case MemoryShare(mib, devices):
            return f"{mib} MiB" + (f" on each of {devices} GPUs" if devices > 1 else "")
        case FractionShare(fraction, devices):
            return f"{fraction:g} of a GPU" + (f" on each of {devices} GPUs" if devices > 1 else "")
        case WholeGpus(count):
            return f"{count} whole GPU{'s' * (count > 1)}"
        case MigSlices(slices):
            return ", ".join(f"{count} {name}" for name, count in slices)
        case None:
            return f"{float(request.cpu):g} cores and {int(request.memory) >> 20} MiB of the system's memory"
