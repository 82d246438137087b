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
        declared = node_labels(args.settings)
        measured: dict[str, pulumi.Output[str]] = {
            node: memory.apply(str)
            for node, memory in args.measured_memory_mib.items()
            if GPU_MEMORY not in declared.get(node, {GPU_MEMORY: ""})
        }
        labels: dict[str, Mapping[str, pulumi.Input[str]]] = {**declared}
        for node, memory in measured.items():
            labels[node] = {**labels[node], GPU_MEMORY: memory}
        args.labeller.register(name, labels, child_opts)
        # One output of what is measured, not one of each label: a thousand nodes have ten each.
        self.labels = pulumi.Output.from_input(measured).apply(lambda memory_mib: _complete(declared, memory_mib))
        # Once in the state is enough where they are many: the one resource has them.
        self.register_outputs({} if args.labeller.joins(labels) else {"labels": self.labels})


def _complete(declared: Mapping[str, dict[str, str]], memory: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The labels of every node, with what was measured."""
    return {node: ours | ({GPU_MEMORY: str(memory[node])} if node in memory else {}) for node, ours in declared.items()}
