"""Labels of many nodes as one document: what all have once, and by node what it has besides.

A thousand Jetsons differ by little more than their names, and the engine's time grows with the values that it is given.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The provider loads this module at every preview, and without the settings' models, which manifests.objects needs.
    from manifests.objects import Manifest

MANY_NODE_LABELS = "kai-anywhere:index:ManyNodeLabels"
"""The type of the resource that holds the document."""


def together(nodes: "Mapping[str, Manifest]") -> dict[str, Any]:
    """The document of nodes.

    Args:
        nodes: name -> a Node with labels, and annotations where it was adopted.

    Returns:
        `labels`, which all nodes have, and `nodes`: name -> `labels` and `annotations` of its own, where it has any.
    """
    common = _common([node["metadata"].get("labels", {}) for node in nodes.values()])
    return {"labels": common, "nodes": {name: _own(node["metadata"], common) for name, node in nodes.items()}}


def apart(document: Mapping[str, Any]) -> "dict[str, Manifest]":
    """The nodes of a document: the reverse of `together`.

    Stacks whose last `up` was before this document hold the Nodes themselves there. Of a plan any part may not be known
    yet; it counts as empty.
    """
    common = _mapping(document.get("labels"))
    return {name: _node(name, _mapping(entry), common) for name, entry in _mapping(document.get("nodes")).items()}


def _common(labels: list[Mapping[str, Any]]) -> dict[str, str]:
    """The labels that all have alike; one whose value is not known yet is not among them."""
    if not labels:
        return {}
    first, *others = labels
    return {
        label: value
        for label, value in first.items()
        if isinstance(value, str) and all(other.get(label) == value for other in others)
    }


def _own(metadata: Mapping[str, Any], common: Mapping[str, str]) -> dict[str, Any]:
    labels = {label: value for label, value in metadata.get("labels", {}).items() if label not in common}
    parts = {"labels": labels, "annotations": metadata.get("annotations", {})}
    return {part: values for part, values in parts.items() if values}


def _node(name: str, entry: Mapping[str, Any], common: Mapping[str, str]) -> "Manifest":
    if "metadata" in entry:
        return dict(entry)
    metadata = {"name": name, "labels": {**common, **_mapping(entry.get("labels"))}}
    if annotations := _mapping(entry.get("annotations")):
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
