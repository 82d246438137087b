"""Nodes that are not any more as the stack remembers them."""

from collections.abc import Iterator, Mapping

from cluster.access.answers.nodes import Node
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding, stack_option
from cluster.preflight.nodes import remote_nodes
from config.stack import StackSettings
from manifests import gpu_operator
from manifests.node_labels import NVIDIA_PCI_DEVICE, node_labels

REFRESHES = "KAI_ANYWHERE_REFRESHES"
"""The variable by which our commands tell the program that `pulumi up --refresh` runs it: the engine does not.

The program reads what the state said before that refresh, and the run goes by what the refresh saw: so what only a
refresh tells the stack is not to be told.
"""


def judge_nodes_that_left(
    settings: StackSettings, nodes: Mapping[str, Node], state: DeployedState, stack: str, *, preview: bool
) -> Iterator[Finding]:
    """Nodes that left both the cluster and the settings, and not the state.

    Symptom without it: an empty Node of that name, for which nobody is there. To let go of its labels the Kubernetes
    provider applies a Node without any, and does not look whether there is one (4.25, ssa.Relinquish; not reported
    upstream that we know of). Adopted ones are let go by us.
    """
    named = {*node_labels(settings), *remote_nodes(settings)}
    for node in sorted(state.patched - nodes.keys() - named):
        if f"Node/{node}" not in state.adopted:
            yield Finding(
                f"node '{node}' left the cluster, and the stack still remembers its labels: taking them off, Pulumi's "
                "Kubernetes provider would make an empty node of that name.",
                f"Let the stack forget it first: pulumi refresh{stack_option(stack)}",
                fatal=not preview,
            )


def judge_lost_labels(
    settings: StackSettings, nodes: Mapping[str, Node], state: DeployedState, stack: str, *, preview: bool
) -> Iterator[Finding]:
    """Labels that the state has and the cluster has not, or with another value: no run writes them without a refresh.

    They went with the stack's GPU Operator, or with a node that joined again under its name. Or an `up` that was to
    take a Jetson out failed midway, and the settings were put back: the operator takes its labels off what is no GPU
    node any more. Symptom without it, where the operator is to be installed again, or is to find the node again: it
    rolls its container toolkit out on Jetsons.
    """
    installed = gpu_operator.RELEASE in {release for _, release in state.releases}
    planned = node_labels(settings)
    for name, labels in state.labels.items():
        if name not in nodes:
            continue
        live = nodes[name].labels
        # What the settings change by themselves, this run writes.
        changed = [
            f"{label} is {live[label]}, not {value}"
            for label, value in planned.get(name, {}).items()
            if labels.get(label) == value != live.get(label, value)
        ]
        lost = [label for label in labels if label not in live]
        if changed:
            yield Finding(
                f"node '{name}' has other labels than the stack gave it: {', '.join(changed)}. "
                # The operator gives a node that joined again what it gives every GPU node.
                f"{'It joined again, or somebody' if lost else 'Somebody'} changed them.",
                f"Only a refresh tells the stack, and then they are put back: pulumi up --refresh{stack_option(stack)}",
                fatal=False,
            )
        if not lost:
            continue
        found_again = name in planned and NVIDIA_PCI_DEVICE in lost
        if settings.gpu_operator.install and (found_again or not installed):
            yield Finding(
                f"node '{name}' lost labels that the stack gave it, and this run would not write them again: "
                f"{', '.join(lost)}.",
                f"Let the stack see that first: pulumi refresh{stack_option(stack)}",
                fatal=not preview,
            )
        elif name in planned:
            yield Finding(
                f"node '{name}' lost labels that the stack gave it: {', '.join(lost)}. It joined again, or somebody "
                "took them off.",
                f"Only a refresh tells the stack, and then they are put back: pulumi up --refresh{stack_option(stack)}",
                fatal=False,
            )
