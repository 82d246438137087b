"""The words that the terminal and the page share. Pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import TypeVar

from sharing_map.report import Fact, Gpu, NodeStatus, Reservation, Share, Status

_UNLIMITED = -1
_WELL = "Running"

T = TypeVar("T")


def summary(status: Status) -> Iterator[str]:
    """The cluster in a few sentences."""
    totals = status.summary
    if totals.nodes is not None:
        yield (
            f"{count(totals.nodes, 'node')}, {totals.gpu_nodes} with GPUs; {count(totals.gpus or 0, 'physical GPU')}. "
            f"KAI can share {totals.shared_mib:,} MiB."
        )
    else:
        yield "Nodes could not be read: which GPUs there are, and what of them is free, is not known."
    if totals.shares is None:
        yield "Pods could not be read: what is free and what is Pending is not known."
        return
    if totals.claiming:
        yield not_counted(totals.claiming)
    pods = f"{count(totals.shares, 'pod')} with GPUs, {totals.pending} Pending."
    if totals.free_mib is None:
        yield pods
        return
    where = "on nodes that take no pods, or those of a node pool alone"
    away = f", {totals.unavailable_mib:,} MiB {where}" if totals.unavailable_mib else ""
    yield (
        f"{totals.taken_mib:,} MiB are taken, {totals.free_mib:,} MiB are free{away}; "
        f"one more pod can get {totals.largest_free_mib:,} MiB at most."
    )
    yield pods


def not_counted(claiming: int) -> str:
    """Why there may be less than is said: pods with devices of DRA."""
    return f"{count(claiming, 'pod')} with DRA claims (resource.k8s.io): GPUs among these are not counted."


def warnings(status: Status) -> Iterator[str]:
    """What could not be read, a line each."""
    for unseen in status.unseen:
        yield f"warning: {unseen.what} could not be read: {clean(unseen.why)}"


def clean(text: str) -> str:
    """A text of the cluster without line breaks and anything else that a terminal or a browser would obey."""
    return printable(text).strip()


def printable(text: str) -> str:
    """The same as far in as it was."""
    return "".join(character if character.isprintable() else " " for character in text)


def amount(gpu: Gpu) -> str:
    """What becomes of a GPU's memory, in words."""
    match gpu.use:
        case "shared":
            is_known = gpu.total_mib is not None and gpu.taken_mib is not None
            text = f"{gpu.taken_mib} of {gpu.total_mib} MiB taken, {gpu.free_mib} free"
            return text if is_known else "shared, memory not known"
        case "whole":
            return "one pod has all of it"
        case "free":
            return "free" if gpu.total_mib is None else f"{gpu.total_mib} MiB free"
        case "time-sliced" | "mig":
            return "nothing says who is on which"
        case "unknown":
            return "not known, pods could not be read"


def others(node: NodeStatus) -> str:
    """What the pods of a node are of which nothing says which GPU they have."""
    words = {"time-slicing": "Time-sliced pods", "remote": "Pods with remote GPUs"}
    return words.get(node.sharing.value, "Pods whose GPU is not known")


def missing(node: NodeStatus) -> str:
    """Why nothing is known of a node but its pods."""
    return node.ready.proof.partition(": ")[2]


def gpus(value: float | None) -> str:
    """GPUs of a queue; a dash where nobody knows them."""
    if value is None:
        return "-"
    return "all" if value == _UNLIMITED else f"{value:g}"


def pods_or_dash(pods: int | None) -> str:
    """A number of pods; a dash where nobody knows it."""
    return "-" if pods is None else str(pods)


def state(share: Share) -> str:
    """How far a pod has come, and of one that has begun what kubectl says: its containers may end again and again."""
    begun = share.state.value in {"running", "unknown"} and share.kubectl_status != _WELL
    return clean(share.kubectl_status) if begun else share.state.value


def silent(held: Reservation, old: str = "") -> str:
    """Why a reservation pod has not answered, as far as it is said, and how old it is."""
    # Nothing says since when the containers of a pod that has begun are as they are.
    since = f" {old}" if old and (runs(held) or held.phase.value == "Pending") else ""
    why = (held.waits or "").removeprefix(held.kubectl_status).removeprefix(": ")
    return clean(f"{held.kubectl_status}{since}{f': {why}' if why else ''}")


def runs(held: Reservation) -> bool:
    """Whether nothing is to be said of a reservation pod that has answered."""
    return held.kubectl_status == _WELL


def short_proof(fact: Fact[T]) -> str:
    """A proof without the object that it is about, where that stands beside it."""
    kind, _, rest = fact.proof.partition(" ")
    return clean(rest.partition(" ")[2] or kind)


def device(identifier: str) -> str:
    """A GPU, as its reservation pod names it."""
    return f"GPU {identifier}, by its index" if identifier.isdigit() else clean(identifier)


def age(taken: datetime, since: datetime | None) -> str:
    """How old a fact was when it was read: `45s`, `12m`, `3h`, `5d`; empty where that is not known."""
    if since is None:
        return ""
    seconds = max(0, int((taken - since).total_seconds()))
    for size, unit, enough in ((86400, "d", 2), (3600, "h", 2), (60, "m", 2)):
        if seconds >= size * enough:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def count(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}{'' if number == 1 else 's'}"
