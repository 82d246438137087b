"""No pod picks its node past the scheduler, and no node passes itself off as a Jetson."""

from collections.abc import Iterator

from pod_checks import table
from policy import interpreter
from policy.findings import Violation, told_name
from policy.reading import parent, text_of
from policy.rule import Rule
from policy.stack_platform import PLATFORM_LABEL, TEGRA, StackFacts
from policy.workloads import Document

_POD_KINDS = ("Pod", "PodTemplate", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")

_LABEL_WHY = (
    "reservation pods of a node with this label become privileged, and this node is none of the stack's Tegra nodes"
)
_LABEL_REMEDY = "list the node under platform.tegra_nodes, or remove the label"


def _check(document: Document, stack: StackFacts) -> Iterator[Violation]:
    yield from interpreter.violations(document, "scheduling", stack)
    for field in document.fields("nodeName") if document.is_kind(*_POD_KINDS) else ():
        # Of a patch that has no container, too.
        if field.path[-2:-1] == ("spec",) and isinstance(field.value, str) and field.value:
            yield Violation(field.path, told_name(field.value))
    # Whoever writes it to nodes: the program, Node Feature Discovery, an autoscaler, a policy.
    is_own = document.is_kind("Node") and document.name in stack.labelled_nodes
    for field in () if is_own else document.fields(PLATFORM_LABEL, "labelsTemplate"):
        is_label = parent(field.path) == "labels" and field.value == TEGRA
        if is_label or f"{PLATFORM_LABEL}={TEGRA}" in text_of(field.value):
            yield Violation(field.path, TEGRA, _LABEL_WHY, _LABEL_REMEDY)


RULE = Rule(
    name="scheduling",
    title="No pod names its node, and only the stack's Tegra nodes carry the platform label.",
    why=table.BY_NAME["node_names"].why,
    remedy=table.BY_NAME["node_names"].remedy,
    reads=frozenset({"spec.nodeName", "Node:=metadata.labels", f"Node:labels.{PLATFORM_LABEL}"}),
    check=_check,
)
