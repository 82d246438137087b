"""What `kai-anywhere status` says, for a terminal. Pure."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from manifests.wording import first_of
from operations.status.words import (
    age,
    amount,
    clean,
    count,
    device,
    gpus,
    missing,
    others,
    pods_or_dash,
    runs,
    short_proof,
    silent,
    state,
    summary,
)
from sharing_map.report import Fact, Gpu, NodeStatus, PendingPod, QueueStatus, Share, Status

_BAR = 24
_PODS = "#="
"""A pod's part of a bar; neighbours differ."""
_FREE, _OVER, _UNCOUNTED = ".", "!", "-"
_WIDEST_NAME = 48

T = TypeVar("T")


def lines(status: Status, width: int) -> Iterator[Text]:
    """The whole map, line by line.

    Args:
        status: the map.
        width: of the terminal. Reasons and remarks are wrapped to it, other lines are cut.
    """
    yield _line((f"{status.context} ({status.server}){', simulated' if status.simulated else ''}", "bold"))
    yield _line(f"Read at {status.taken:%Y-%m-%d %H:%M:%S} UTC; ages count from there.")
    for sentence in summary(status):
        yield from _wrapped(sentence, width)
    without = [node.name for node in status.nodes if not node.has_gpus]
    for node in status.nodes:
        if node.has_gpus:
            yield Text()
            yield from _node(node, status, width)
    if without:
        yield Text()
        yield from _wrapped(f"Without GPUs: {_named(without)}.", width)
    if status.pending:
        yield Text()
        yield _line(("PENDING", "bold"))
        for pod in status.pending:
            yield from _pending(pod, status, width)
    if status.queues:
        yield Text()
        yield from _queues(status.queues, width)


def bar(gpu: Gpu, width: int = _BAR) -> str:
    """A GPU's memory: each pod's part in turn as `#` and `=`, what is free as dots.

    `!` where more is promised than there is, `-` where nothing is counted.
    """
    total = gpu.total_mib
    if not total:
        return _UNCOUNTED * width
    if gpu.use == "whole":
        return _PODS[0] * width
    parts, before = "", 0
    for index, share in enumerate(gpu.shares):
        before += share.mib or 0
        # However much more than there is: anybody's annotation says it.
        parts += _PODS[index % 2] * (round(min(before, 2 * total) / total * width) - len(parts))
    return (parts + _FREE * width)[:width] if len(parts) <= width else _OVER * width


def _node(node: NodeStatus, status: Status, width: int) -> Iterator[Text]:
    traits = [node.platform.value or node.architecture]
    if node.ready.value is None:
        traits = [missing(node)]
        memory = "what it says of itself is not known"
    else:
        memory = _memory(node, status)
        ready = "ready" if node.ready.value else "NOT READY"
        traits.append(f"{ready}{_since(node.ready, status)}")
    if node.cordoned.value:
        traits.append("CORDONED")
    if node.to_tolerate:
        traits.append(f"for pods that tolerate {', '.join(node.to_tolerate)}")
    if node.pool.value:
        traits.append(f"node pool '{node.pool.value}'")
    if node.ready.value is not None:
        traits.append(f"{count(node.gpu_count.value, 'GPU')}, {node.advertised.value} advertised")
    yield _line((clean(node.name), "bold"), "  " + ", ".join(clean(trait) for trait in traits if trait))
    yield _line((f"  {memory}", "dim"))
    for gpu in node.gpus:
        yield from _gpu(gpu, status, width)
    if node.other_pods:
        yield _line(f"  {others(node)}:")
        yield from _shares(node.other_pods, status, width)
    for remark in node.remarks:
        yield from _wrapped(f"  ! {clean(remark)}", width, "yellow")


def _memory(node: NodeStatus, status: Status) -> str:
    label = node.memory_label
    match node.sharing.value:
        case "time-slicing":
            return f"time-sliced by the device plugin, of which KAI knows no memory ({short_proof(node.sharing)})"
        case "mig":
            return f"MIG ({short_proof(node.sharing)})"
        case "remote":
            return f"its GPUs stand for those of other nodes ({short_proof(node.sharing)})"
        case _ if node.shared_mib is None:
            return f"memory not known ({short_proof(label)})"
        case _:
            source = f"{short_proof(label)}: {clean(label.value or '')}{_since(label, status)}"
            return f"KAI shares {node.shared_mib} MiB of each GPU ({source})"


def _gpu(gpu: Gpu, status: Status, width: int) -> Iterator[Text]:
    style = "red" if (gpu.free_mib or 0) < 0 else "green" if gpu.use == "free" else "cyan"
    memory = amount(gpu)
    beside = len(f"  [{bar(gpu)}] {memory}") <= width
    yield _line("  [", (bar(gpu), style), f"] {memory}" if beside else "]")
    if not beside:
        yield from _wrapped(f"    {memory}", width)
    if gpu.group is not None:
        yield _line((f"    {_device(gpu, status)}; group {clean(gpu.group)}", "dim"))
    yield from _shares(gpu.shares, status, width)


def _device(gpu: Gpu, status: Status) -> str:
    held = gpu.reservation
    if held is None:
        return "GPU not known, no reservation pod"
    if held.device.value is None:
        return f"GPU not answered yet by {held.name} ({silent(held, age(status.taken, held.phase.since))})"
    now = "" if runs(held) else f", now {clean(held.kubectl_status)}"
    return f"{device(held.device.value)}, told by {held.name}{_since(held.device, status)}{now}"


def _shares(shares: Sequence[Share], status: Status, width: int) -> Iterator[Text]:
    names = [clean(f"{share.namespace}/{share.name}") for share in shares]
    # A long name takes the room of its own line alone.
    name_width = min(_WIDEST_NAME, width // 3, max(map(cell_len, names), default=0))
    asks_width = min(_WIDEST_NAME, max((len(share.asks.value) for share in shares), default=0))
    for name, share in zip(names, shares, strict=True):
        # Since when a container ends again and again, nothing says.
        since = _since(share.state, status) if (said := state(share)) == share.state.value else ""
        columns = f"{clean(share.asks.value):<{asks_width}}  {said}{since}"
        queue = f", queue {clean(share.queue)}" if share.queue else ""
        yield _line(f"    {name:<{name_width}}  {columns}{queue}", (f"  ({short_proof(share.asks)})", "dim"))


def _pending(pod: PendingPod, status: Status, width: int) -> Iterator[Text]:
    parts = [pod.asks.value if pod.asks else "no GPU"]
    parts += [f"queue {pod.queue}"] if pod.queue else []
    parts += [f"on {pod.node}"] if pod.node else []
    waits = age(status.taken, pod.created)
    parts += [f"created {waits} ago"] if waits else []
    yield _line((clean(f"{pod.namespace}/{pod.name}"), "bold"), f"  {clean(', '.join(parts))}")
    for reason in pod.reasons:
        yield from _wrapped(f"    {clean(reason.value)} ({reason.proof}{_since(reason, status, ', ')})", width)
    if not pod.reasons:
        yield _line("    Nothing says why yet.")


def _queues(queues: Sequence[QueueStatus], width: int) -> Iterator[Text]:
    heading, columns = "QUEUES, in GPUs", f"  {'QUOTA':>6} {'LIMIT':>6} {'USED':>6} {'KAI SAYS':>8}  PODS  PENDING"
    # The numbers are worth more than the end of a name, and a name more than how deep it stands.
    room = max(len(heading), width - len(columns))
    indents = ["  " * min(queue.depth, room // 4) for queue in queues]
    names = [f"{indent}{clean(queue.name)}" for indent, queue in zip(indents, queues, strict=True)]
    wide = min(_WIDEST_NAME, room, max(cell_len(name) for name in [*names, heading]))
    names = [name if cell_len(name) <= room else f"{set_cell_size(name, room - 1)}…" for name in names]
    yield _line((f"{heading:<{wide}}{columns}", "bold"))
    for indent, name, queue in zip(indents, names, queues, strict=True):
        numbers = f"{gpus(queue.quota.value):>6} {gpus(queue.limit.value):>6} {gpus(queue.used.value):>6}"
        pods, pending = pods_or_dash(queue.pods), pods_or_dash(queue.pending)
        yield _line(f"{name:<{wide}}  {numbers} {gpus(queue.reported.value):>8}  {pods:>4}  {pending:>7}")
        if queue.difference:
            yield from _wrapped(f"{indent}    {queue.difference}", width, "dim")


def _since(fact: Fact[T], status: Status, before: str = " ") -> str:
    old = age(status.taken, fact.since)
    return f"{before}{old}" if old else ""


def _named(names: Sequence[str], at_most: int = 8) -> str:
    return first_of(map(clean, names), at_most)


def _line(*parts: str | tuple[str, str]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for part in parts:
        line.append(*((part,) if isinstance(part, str) else part))
    return line


def _wrapped(text: str, width: int, style: str = "") -> Iterator[Text]:
    """A long text in as many lines as it needs, each as far in as the first."""
    indent = " " * (len(text) - len(text.lstrip()))
    line = indent
    for word in text.split():
        if line != indent and len(line) + len(word) + 1 > width:
            yield _line((line, style))
            line = indent
        line = f"{line}{'' if line == indent else ' '}{word}"
    yield _line((line, style))
