"""Labels of the nodes that a stack names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components import tokens
from components.kubernetes import Labeller
from config.stack import StackSettings
from manifests.node_labels import GPU_MEMORY, node_labels


@dataclass(frozen=True)
class NodeLabelsArgs:
    """What NodeLabels needs.

    Attributes:
        settings: the stack's settings.
        labeller: who labels them.
        measured_memory_mib: memory of one GPU by node, for nodes whose memory is not declared.
        depends_on: what the labels wait for.
    """

    settings: StackSettings
    labeller: Labeller
    measured_memory_mib: Mapping[str, pulumi.Output[int | None]] = field(default_factory=dict)
    depends_on: Sequence[pulumi.Resource] = ()


class NodeLabels(pulumi.ComponentResource):
    """GPU memory and count where nobody else knows them, our platform label, operand switches, the sharing profile.

    Attributes:
        labels: node name -> label -> value.
    """

    labels: pulumi.Output[dict[str, dict[str, str]]]

    def __init__(self, name: str, args: NodeLabelsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.NODE_LABELS, name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self, depends_on=list(args.depends_on))
        labels: dict[str, Mapping[str, pulumi.Input[str]]] = {
            node: {**ours, **_measured(node, ours, args.measured_memory_mib)}
            for node, ours in node_labels(args.settings).items()
        }
        args.labeller.register(name, labels, child_opts)
        known: Any = labels
        self.labels = pulumi.Output.from_input(known)
        self.register_outputs({"labels": self.labels})


def _measured(
    node: str, declared: Mapping[str, str], memory_mib: Mapping[str, pulumi.Output[int | None]]
) -> dict[str, pulumi.Input[str]]:
    """The memory that the node's host was asked for, unless it is declared."""
    if GPU_MEMORY in declared or node not in memory_mib:
        return {}
    return {GPU_MEMORY: memory_mib[node].apply(str)}
