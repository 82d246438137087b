"""The nodes that a resource labels: one, or many together."""

from collections.abc import Mapping

from manifests.many_nodes import apart
from operations.pull_request.values import at, mapping, text


def labelled(kind: str, inputs: Mapping[str, object] | None) -> dict[str, Mapping[str, object]]:
    """Labels by node; nothing of a resource that labels none.

    Args:
        kind: the resource's type.
        inputs: its inputs, or None where it is not there.
    """
    if inputs is None:
        return {}
    match kind.rsplit(":", 1)[-1]:
        case "NodePatch":
            nodes: list[Mapping[str, object]] = [inputs]
        case "ManyNodeLabels":
            nodes = list(apart(inputs).values())
        case _:
            return {}
    return {text(at(node, "metadata", "name")): mapping(at(node, "metadata", "labels")) for node in nodes}
