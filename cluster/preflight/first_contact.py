"""First contact with what is there already and is not this stack's: it is never taken over in silence."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import LiveObject
from cluster.access.client import Cluster
from cluster.access.lists import at_once
from cluster.ownership.deployed_state import DeployedState
from cluster.ownership.leftovers import PROVIDER
from cluster.preflight.findings import Finding
from cluster.preflight.label_writers import PERSON, RANDOM_MANAGER, judge_writers
from config.gvirtus import FRONTEND_ALLOWED
from config.stack import StackSettings
from manifests import every_object, gpu_operator, kai, reservation
from manifests.node_labels import GPU_MEMORY, OPERAND_SWITCH, node_labels
from manifests.objects import Manifest
from manifests.ownership import BEFORE, before, kept_values, key, owner, stack_of

_MEASURED = None
"""A label whose value is asked of the node's host later."""
_ANOTHER_CONTEXT = "choose another context"
_ANOTHER_NAME: Mapping[str, str] = {
    # KAI's own name for it; no setting has another.
    f"Namespace/{reservation.NAMESPACE}": _ANOTHER_CONTEXT,
    "Namespace": "choose another namespace in the settings",
    "Queue": "give the queue another name, or set kai.default_queue: false where it is one of KAI's usual pair",
}


@dataclass(frozen=True)
class Contact:
    """What comes of looking.

    Attributes:
        findings: what was met and may not be taken.
        adopted: the kept values of everything that is adopted, by object; those of earlier runs among them.
    """

    findings: tuple[Finding, ...] = ()
    adopted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def planned_objects(settings: StackSettings) -> dict[str, Manifest]:
    """Every object that the stack registers under a fixed name, by `Kind/name` or `Kind/namespace/name`."""
    return {key(manifest): manifest for manifest in every_object.objects(settings).values()}


def read_unknown(cluster: Cluster, settings: StackSettings, state: DeployedState) -> dict[str, LiveObject]:
    """What is there under the names of the stack's objects and is not in its state."""
    manifests = {
        name: manifest
        for name, manifest in planned_objects(settings).items()
        if name not in state.objects and not (manifest["kind"] == "SchedulingShard" and kai_is_ours(settings, state))
    }
    with at_once() as threads:
        answers = zip(manifests, threads.map(cluster.find_object, manifests.values()), strict=True)
        return {name: live for name, live in answers if live is not None}


def meet(
    settings: StackSettings,
    unknown: Mapping[str, LiveObject],
    nodes: Mapping[str, Node],
    state: DeployedState,
    stack: str,
) -> Contact:
    """Judge what was found.

    Args:
        settings: the stack's settings.
        unknown: what `read_unknown` found.
        nodes: the cluster's nodes, by name.
        state: what the stack remembers.
        stack: the stack, as project/name.
    """
    planned = planned_objects(settings)
    labels = planned_labels(settings)
    findings: list[Finding] = []
    adopted = dict(state.adopted)
    for name, live in sorted(unknown.items()):
        if _of_a_killed_run(live, settings, stack):
            if (kept := _kept(live, stack, state.begun.get(name))) is not None:
                adopted[name] = kept
            continue
        finding = _object(name, live, settings.cluster.adopt)
        if finding is not None:
            findings.append(finding)
        else:
            adopted[name] = before(live.content, planned[name])
    for node in (nodes[name] for name in labels if name in nodes):
        contact = _meet_node(node, labels[node.name], state, stack, settings.cluster.adopt)
        findings += contact.findings
        adopted.pop(f"Node/{node.name}", None)
        adopted |= contact.adopted
    findings.extend(judge_writers(nodes, labels, stack))
    findings.extend(_not_planned(settings.cluster.adopt, [*planned, *(f"Node/{node}" for node in labels)]))
    return Contact(tuple(findings), adopted)


def _meet_node(
    node: Node, desired: Mapping[str, str | None], state: DeployedState, stack: str, adopt: Sequence[str]
) -> Contact:
    """Judge the labels of a node."""
    name = f"Node/{node.name}"
    ours, kept = state.labels.get(node.name, {}), state.adopted.get(name)
    if kept is not None and not _is_written(node):
        # Another machine that joined under its name, or a cluster put back from before: it is adopted anew.
        ours, kept, adopt = {}, None, (*adopt, name)
    if (beside := _kept(node, stack, state.begun.get(name))) is not None:
        kept = {"metadata": {"labels": _kept_labels(beside) | _kept_labels(kept or {})}}
    theirs = _their_labels(desired, node, ours, stack)
    if any(release == gpu_operator.RELEASE for _, release in state.releases):
        theirs = {label: value for label, value in theirs.items() if not _by_the_operator(node, label, value)}
    finding = _labels(node, desired, theirs, stack, adopt) if theirs else None
    if theirs and finding is None:
        kept = {"metadata": {"labels": theirs | _kept_labels(kept or {})}}
    return Contact((finding,) if finding else (), {} if kept is None else {name: kept})


def planned_labels(settings: StackSettings) -> dict[str, dict[str, str | None]]:
    """The labels of every node that the stack labels; None where a host is asked for the value."""
    labels: dict[str, dict[str, str | None]] = {node: dict(ours) for node, ours in node_labels(settings).items()}
    memory = {node: unified.gpu_memory_mib for node, unified in settings.platform.unified_memory_nodes.items()}
    memory |= {node: tegra.gpu_memory_mib for node, tegra in settings.platform.jetsons.items()}
    for node, declared in memory.items():
        if declared is None:
            labels[node][GPU_MEMORY] = _MEASURED
    remote = settings.gvirtus
    if remote is not None and remote.frontends is not None and not settings.gpu_operator.install:
        for node in remote.frontends.nodes:
            labels.setdefault(node, {})[FRONTEND_ALLOWED] = "true"
    return labels


def kai_is_ours(settings: StackSettings, state: DeployedState) -> bool:
    """Its chart makes the default shard, which the stack takes from it in the same run."""
    return (settings.kai.namespace, kai.RELEASE) in state.releases


def _of_a_killed_run(live: LiveObject, settings: StackSettings, stack: str) -> bool:
    """Whether the stack made it, or its release of KAI, and was killed before it could note that down."""
    if not any(map(stack_of, live.managers)):
        return live.release == (settings.kai.namespace, kai.RELEASE) and PROVIDER in live.managers
    return any(manager.startswith(owner(stack)) for manager in live.managers)


def _kept(live: LiveObject | Node, stack: str, begun: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the object held before the stack adopted it; None where the stack did not.

    By the stack's own annotation: the state does not know the object where the run that adopted was killed before it
    could note that down, or where an older state was put back. Where somebody took the annotation off, by what that run
    was about to adopt. Symptom without it: the next `destroy` deletes what was somebody's.
    """
    ours = [entry for entry in live.owners if entry.manager.startswith(owner(stack))]
    if BEFORE in live.annotations and any(entry.owns_annotation(BEFORE) for entry in ours):
        return kept_values(live.annotations[BEFORE])
    return begun if ours else None


def _is_written(node: Node) -> bool:
    """Whether a stack wrote anything on a node: this one, under whatever name it had then."""
    return any(stack_of(entry.manager) or entry.manager.startswith(RANDOM_MANAGER) for entry in node.owners)


def _kept_labels(kept: Mapping[str, Any]) -> dict[str, str]:
    return dict(kept.get("metadata", {}).get("labels", {}))


def _object(name: str, live: LiveObject, adopt: Sequence[str]) -> Finding | None:
    """What is wrong with taking an object over, or None where the settings say to adopt it."""
    stacks = sorted({stack for manager in live.managers if (stack := stack_of(manager)) is not None})
    if stacks:
        return _other_stack(_shown(name), stacks[0])
    if name in adopt:
        return None
    written = f" (written by {', '.join(live.managers)})" if live.managers else ""
    alternative = _ANOTHER_NAME.get(name) or _ANOTHER_NAME.get(name.partition("/")[0], _ANOTHER_CONTEXT)
    return Finding(
        f"{_shown(name)} exists already and is not this stack's{written}.",
        f"To use it as it is named, add {name} to cluster.adopt: what it holds now is kept, and given back on destroy. "
        f"Or {alternative}.",
    )


def _their_labels(planned: Mapping[str, str | None], node: Node, ours: Mapping[str, str], stack: str) -> dict[str, str]:
    """Labels of a node that somebody else set to another value than we would.

    One that is ours and was edited since is none of them, which a refresh may have noted down: it is repaired. One that
    somebody set to the same value as we did is his all the same, as soon as ours changes.
    """
    theirs = {}
    for label, value in planned.items():
        current = node.labels.get(label)
        if current is None or current == value:
            continue
        # The second one is from before the stack's field managers had names of their own.
        own = (owner(stack), RANDOM_MANAGER) if label in ours else owner(stack)
        owners = [entry.manager for entry in node.owners if entry.owns_label(label)]
        others = [manager for manager in owners if not manager.startswith(own)]
        edited = label in ours and len(others) == len(owners)
        if not edited and (others or not owners):
            theirs[label] = current
    return theirs


def _by_the_operator(node: Node, label: str, value: str) -> bool:
    """Whether the GPU Operator switched an operand on, as it does with all of them where it meets a GPU before we do.

    It does where a node of the stack joins again under its name.
    """
    owners = [entry.manager for entry in node.owners if entry.owns_label(label)]
    nobody_else = not any(manager.startswith(PERSON) or stack_of(manager) for manager in owners)
    return label.startswith(OPERAND_SWITCH) and value == "true" and nobody_else


def _labels(
    node: Node, planned: Mapping[str, str | None], theirs: Mapping[str, str], stack: str, adopt: Sequence[str]
) -> Finding | None:
    """What is wrong with setting these labels, or None where the settings say to adopt them."""
    differences = []
    for label, value in sorted(theirs.items()):
        owners = dict.fromkeys(entry.manager for entry in node.owners if entry.owns_label(label))
        managers = [manager for manager in owners if not manager.startswith(owner(stack))]
        stacks = sorted({other for manager in managers if (other := stack_of(manager)) is not None})
        if stacks:
            return _other_stack(f"the label {label} of node '{node.name}'", stacks[0])
        by = f" by {', '.join(managers)}" if managers else ""
        ours = "what its host says" if planned[label] is _MEASURED else f"'{planned[label]}'"
        differences.append(f"{label} is '{value}'{by}, the stack sets {ours}")
    if f"Node/{node.name}" in adopt:
        return None
    return Finding(
        f"node '{node.name}' has labels that are not this stack's: {'; '.join(differences)}.",
        f"To set them while the stack is there, add Node/{node.name} to cluster.adopt: their values are kept, and "
        "given back on destroy. Or say the same values in the settings, or leave the node out of the stack.",
    )


def _other_stack(what: str, stack: str) -> Finding:
    return Finding(
        f"{what} belongs to another stack of this program, '{stack}'.",
        "Use that stack, or choose another context: two stacks would take turns on it.",
    )


def _not_planned(adopt: Sequence[str], planned: Sequence[str]) -> list[Finding]:
    findings = []
    for name in adopt:
        if name not in planned:
            near = difflib.get_close_matches(name, planned, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            findings.append(
                Finding(
                    f"cluster.adopt names {name}, which this stack does not make.{hint}",
                    "Correct the entry, or remove it.",
                )
            )
    return findings


def _shown(name: str) -> str:
    kind, *place, last = name.split("/")
    where = f" in namespace '{place[0]}'" if place else ""
    return f"{kind} '{last}'{where}"
