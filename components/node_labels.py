"""Labels of the nodes that a stack names."""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import Provider

from components import tokens
from components.kubernetes import register_node_labels
from config.stack import StackSettings
from manifests.node_labels import node_labels


@dataclass(frozen=True)
class NodeLabelsArgs:
    """What NodeLabels needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
    """

    settings: StackSettings
    provider: Provider


class NodeLabels(pulumi.ComponentResource):
    """GPU memory and count where nobody else knows them, our platform label, operand switches, the sharing profile.

    Attributes:
        labels: node name -> label -> value.
    """

    labels: pulumi.Output[dict[str, dict[str, str]]]

    def __init__(self, name: str, args: NodeLabelsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.NODE_LABELS, name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        labels = node_labels(args.settings)
        for node, ours in labels.items():
            register_node_labels(f"{name}-{node}", node, ours, child_opts)
        self.labels = pulumi.Output.from_input(labels)
        self.register_outputs({"labels": self.labels})
