"""What a plan means for people, in sentences: privilege and memory of nodes, queues, versions, what restarts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from config.reservation import Privilege
from manifests.gpu_operator import RELEASE as GPU_OPERATOR
from manifests.kai import RELEASE as KAI
from manifests.node_labels import (
    DEVICE_PLUGIN_CONFIG,
    GPU_COUNT,
    GPU_MEMORY,
    KAI_NODE_POOL,
    OPERAND_SWITCH,
    PLATFORM,
    TIME_SLICING_POOL,
)
from manifests.wording import first_of
from operations.engine_events import Record, Step
from operations.pull_request import markdown
from operations.pull_request.labelled import labelled
from operations.pull_request.rungs import Resource, rungs
from operations.pull_request.values import at, mapping, text
from operations.redaction import Redactor

_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine has in place of a value that only the deployment tells (sdk/go/common/resource/plugin, 3.259)."""
_POWER = (None, Privilege.NONE, Privilege.DEVICES, Privilege.PRIVILEGED)
_NOTHING_OF_OURS = "as KAI makes them"
_RELEASES = {
    KAI: ("KAI scheduler", "its scheduler restarts; running pods go on"),
    GPU_OPERATOR: ("GPU Operator", "its operands restart node by node; a new toolkit may restart containerd"),
}
_UNITS = {"gpu": ("GPU", "GPUs"), "cpu": ("CPU", "millicpus"), "memory": ("memory", "MB")}
_WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet")


@dataclass(frozen=True)
class _Change:
    """A resource before and after; None where it is not there."""

    type: str
    urn: str
    old: Mapping[str, object] | None
    new: Mapping[str, object] | None

    @property
    def kind(self) -> str:
        return self.type.rsplit(":", 1)[-1]

    @property
    def either(self) -> Mapping[str, object]:
        return self.new if self.new is not None else self.old or {}


def sentences(record: Record, redactor: Redactor) -> list[str]:
    """What changes for people, the most important first, as markdown; texts of others stand in code.

    Args:
        record: a preview.
        redactor: hides secrets.
    """

    def code(value: object) -> str:
        return markdown.code(redactor.text(str(value)), length=100)

    # The engine's order is another one in every run.
    changes = sorted((_change(step) for step in record.steps), key=lambda change: change.urn)
    kept = [(step.type, step.new.inputs or {}) for step in record.unchanged if step.new is not None]
    parts: tuple[Callable[[], Iterable[str]], ...] = (
        lambda: _privilege(changes, kept, code),
        lambda: _memory(changes, code),
        lambda: _count(changes, code),
        lambda: _toolkit(changes, code),
        lambda: _sharing(changes, code),
        lambda: _queues(changes, code),
        lambda: _versions(changes, code),
        lambda: _hosts(changes, code),
        lambda: _guard(changes),
        lambda: _workloads(changes, code),
        lambda: _namespaces(changes, code),
    )
    return [sentence for part in parts for sentence in part()]


def _change(step: Step) -> _Change:
    # A step of an engine that hides states says nothing of them: it is then as if nothing were there.
    old = (step.old.inputs or {}) if step.old is not None and step.op != "create" else None
    new = (step.new.inputs or {}) if step.new is not None and step.op != "delete" else None
    return _Change(step.type, step.urn, old, new)


def _privilege(changes: Sequence[_Change], kept: Sequence[Resource], code: Callable[[object], str]) -> Iterable[str]:
    before = rungs([*kept, *((change.type, change.old) for change in changes if change.old is not None)])
    after = rungs([*kept, *((change.type, change.new) for change in changes if change.new is not None)])
    by_move: dict[tuple[Privilege | None, Privilege | None], list[str]] = {}
    for node in sorted({*before, *after}):
        move = before.get(node), after.get(node)
        if move[0] is not move[1]:
            by_move.setdefault(move, []).append(node)
    for (old, new), nodes in sorted(by_move.items(), key=lambda item: -_POWER.index(item[0][1])):
        gains = _POWER.index(new) > _POWER.index(old)
        words = " → ".join(_NOTHING_OF_OURS if rung is None else code(rung.value) for rung in (old, new))
        degree = "**more privilege**" if gains else "less privilege"
        yield f"{_nodes(nodes, code)}: reservation pods get {degree} ({words})."
    if by_move:
        yield "Reservation pods that run keep what they have until KAI makes them anew."


def _labels(changes: Iterable[_Change], label: str) -> Iterable[tuple[str, str | None, str | None]]:
    """Each node whose label changes, with the old and the new value."""
    listed = list(changes)
    # All before and all after: nodes may move from a resource each to one for all, which changes no label.
    before = {node: ours for change in listed for node, ours in labelled(change.type, change.old).items()}
    after = {node: ours for change in listed for node, ours in labelled(change.type, change.new).items()}
    for node in dict.fromkeys([*before, *after]):
        old, new = (labels.get(node, {}).get(label) for labels in (before, after))
        if old != new:
            yield node, None if old is None else str(old), None if new is None else str(new)


def _memory(changes: Iterable[_Change], code: Callable[[object], str]) -> Iterable[str]:
    nodes: dict[str, list[str]] = {}
    for node, old, new in _labels(changes, GPU_MEMORY):
        was = "" if old in {None, _UNKNOWN} else f" instead of {code(old)} MiB"
        if new is None:
            sentence = f"this stack does not say any more what KAI may share of a GPU (it was {code(old)} MiB)"
        elif new == _UNKNOWN:
            sentence = f"KAI may share of a GPU what its host answers at the deployment{was}"
        else:
            sentence = f"KAI may share {code(new)} MiB of each GPU{was}"
        nodes.setdefault(sentence, []).append(node)
    return [f"{_nodes(listed, code)}: {sentence}." for sentence, listed in nodes.items()]


def _count(changes: Iterable[_Change], code: Callable[[object], str]) -> Iterable[str]:
    nodes: dict[str, list[str]] = {}
    for node, old, new in _labels(changes, GPU_COUNT):
        # Of a node that comes or goes, the sentence about its memory is enough.
        if old is not None and new is not None:
            nodes.setdefault(f"KAI counts {code(new)} GPUs there instead of {code(old)}", []).append(node)
    return [f"{_nodes(listed, code)}: {sentence}." for sentence, listed in nodes.items()]


def _toolkit(changes: Sequence[_Change], code: Callable[[object], str]) -> Iterable[str]:
    come_or_go = {node for node, _, _ in _labels(changes, PLATFORM)}
    nodes: dict[bool, list[str]] = {}
    for node, _, new in _labels(changes, f"{OPERAND_SWITCH}container-toolkit"):
        if node not in come_or_go:
            nodes.setdefault(new is None, []).append(node)
    for operators, listed in nodes.items():
        move = "comes, and may restart containerd there" if operators else "goes"
        yield f"{_nodes(listed, code)}: the GPU Operator's container toolkit {move}."


def _sharing(changes: Sequence[_Change], code: Callable[[object], str]) -> Iterable[str]:
    nodes: dict[str, list[str]] = {}
    for node, old, new in _labels(changes, DEVICE_PLUGIN_CONFIG):
        words = " → ".join("none" if value is None else code(value) for value in (old, new))
        nodes.setdefault(f"the device plugin's profile changes ({words}), and the plugin restarts there", []).append(
            node
        )
    for node, old, new in _labels(changes, KAI_NODE_POOL):
        if TIME_SLICING_POOL in {old, new}:
            sliced = new == TIME_SLICING_POOL
            sentence = (
                f"KAI places {'no pods there any more: its GPUs are time-sliced' if sliced else 'pods there again'}"
            )
            nodes.setdefault(sentence, []).append(node)
    return [f"{_nodes(listed, code)}: {sentence}." for sentence, listed in nodes.items()]


def _queues(changes: Iterable[_Change], code: Callable[[object], str]) -> Iterable[str]:
    for change in changes:
        if change.kind != "Queue":
            continue
        name = f"Queue {code(text(at(change.either, 'metadata', 'name')))}"
        old, new = (_queue(state) for state in (change.old, change.new))
        if change.new is None:
            yield f"{name} is deleted: pods that name it are not scheduled any more."
        elif change.old is None:
            amounts = ", ".join(f"{what} {_amount(what, new[what], code)}" for what in new if what.startswith("GPU"))
            yield f"{name} is new: {amounts}." if amounts else f"{name} is new."
        else:
            moved = [what for what in dict.fromkeys((*old, *new)) if old.get(what) != new.get(what)]
            if moved:
                moves = "; ".join(
                    f"{what} {_amount(what, old.get(what), code, unit=False)} → {_amount(what, new.get(what), code)}"
                    for what in moved
                )
                yield f"{name}: {moves}."


def _queue(queue: Mapping[str, object] | None) -> dict[str, object]:
    """What a queue says, by a name for people."""
    if queue is None:
        return {}
    quotas = {
        f"{title} {word}": value
        for resource, (title, _) in _UNITS.items()
        for key, word in (("quota", "quota"), ("limit", "limit"), ("overQuotaWeight", "weight beyond it"))
        if (value := at(queue, "spec", "resources", resource, key)) is not None
    }
    others = {"parent": at(queue, "spec", "parentQueue"), "priority": at(queue, "spec", "priority")}
    return quotas | {name: value for name, value in others.items() if value is not None}


def _amount(what: str, value: object, code: Callable[[object], str], *, unit: bool = True) -> str:
    if value is None:
        return "none"
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if whole == -1 and what.endswith(("quota", "limit")):
        return "no limit"
    units = [unit_ for title, unit_ in _UNITS.values() if unit and what in {f"{title} quota", f"{title} limit"}]
    return " ".join((code(whole), *units))


def _versions(changes: Iterable[_Change], code: Callable[[object], str]) -> Iterable[str]:
    for change in changes:
        if change.kind != "Release":
            continue
        name = text(at(change.either, "name"))
        title, effect = _RELEASES.get(name, (f"Helm release {code(name)}", "what it runs restarts"))
        old, new = (_chart(state) for state in (change.old, change.new))
        if change.new is None:
            yield f"{title} is **removed**."
        elif change.old is None:
            yield f"{title} {code(new)} is installed."
        elif old != new:
            yield f"{title} {code(old)} → {code(new)}: {effect}."
        elif at(change.old, "values") != at(change.new, "values"):
            yield f"{title}: values of its chart change; what reads them restarts, running pods of yours go on."


def _chart(release: Mapping[str, object] | None) -> str:
    """A release's version, or its chart where that is a folder with a version of its own."""
    return text(at(release or {}, "version")) or text(at(release or {}, "chart"))


def _hosts(changes: Iterable[_Change], code: Callable[[object], str]) -> Iterable[str]:
    for change in changes:
        if not (change.kind == "Command" and "kai-anywhere:index:Host$" in change.urn):
            continue
        host, _, command = change.urn.rsplit("::", 1)[-1].removeprefix("hosts-").rpartition("-")
        # The probe is what gives a host back, also one that a failed run has begun to configure.
        if (change.new is None) != (command == "probe") or command not in {"probe", "configured"}:
            continue
        if change.new is None:
            yield f"Host {code(host)} is given back: its container runtime restarts if what is taken back concerns it."
        elif change.old is None:
            yield f"Host {code(host)} is prepared: its container runtime restarts if its configuration changes."
        else:
            yield f"Host {code(host)} is configured anew: its container runtime restarts if its configuration changes."


def _guard(changes: Iterable[_Change]) -> Iterable[str]:
    guard = [change for change in changes if "kai-anywhere:index:PodGuard$" in change.urn]
    if guard:
        if all(change.new is None for change in guard):
            yield "The pod guard is **removed**: nothing judges pods in the cluster any more."
        else:
            verb = "comes" if all(change.old is None for change in guard) else "changes"
            yield f"The pod guard {verb}: it judges pods that are made or changed from then on."


def _workloads(changes: Iterable[_Change], code: Callable[[object], str]) -> Iterable[str]:
    for change in changes:
        if change.kind in _WORKLOADS and change.old is not None and change.new is not None:
            old, new = (at(state, "spec", "template") for state in (change.old, change.new))
            if old != new:
                place = "/".join(filter(None, (text(at(change.new, "metadata", key)) for key in ("namespace", "name"))))
                yield f"{change.kind} {code(place)}: its pods restart."


def _namespaces(changes: Iterable[_Change], code: Callable[[object], str]) -> Iterable[str]:
    for change in changes:
        if change.kind == "Namespace" and change.new is None:
            name = text(at(mapping(change.old), "metadata", "name"))
            yield f"Namespace {code(name)} is **deleted**, with everything in it."


def _nodes(names: Sequence[str], code: Callable[[object], str]) -> str:
    return f"{'Node' if len(names) == 1 else 'Nodes'} {first_of(map(code, names))}"
