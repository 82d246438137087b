"""Objects that the operators look at, and what of a decision is asked about."""

from typing import Any

from simulator.nodes import NodeKind, manifest
from simulator.operands.world import (
    Apply,
    Decision,
    Delete,
    Merge,
    Object,
)

AVAILABLE = {"conditions": [{"type": "Available", "status": "True"}]}


def deployment(name: str, namespace: str = "ns", **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"selector": {"matchLabels": {"app": name}}},
        "status": AVAILABLE,
    }


def node(kind: NodeKind, name: str = "n", **labels: str) -> dict[str, Any]:
    made = manifest(name, kind)
    made["metadata"]["labels"] |= labels
    return made


def policy(**spec: object) -> dict[str, Any]:
    metadata = {"name": "cluster-policy", "uid": "policy-uid"}
    return {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": metadata, "spec": spec}


def rule(*, name: str = "n", feature: str = "system.name", op: str = "In", **extra: object) -> dict[str, Any]:
    term = {"feature": feature, "matchExpressions": {"nodename": {"op": op, "value": [name]}}}
    entry = {"name": "r", "labels": {"pci-10de.present": "true"}, "matchFeatures": [term], **extra}
    return {"metadata": {"name": "rules"}, "spec": {"rules": [entry]}}


def names(decision: Decision, kind: type, of: str) -> set[str]:
    """Names of the objects of kind `of` that changes of class `kind` are about."""
    names = set()
    for change in decision.changes:
        match change:
            case Apply(applied) if kind is Apply and applied["kind"] == of:
                names.add(applied["metadata"]["name"])
            case Merge(ref) | Delete(ref) if isinstance(change, kind) and ref.kind == of:
                names.add(ref.name)
    return names


def applied(decision: Decision, name: str, kind: str | None = None) -> Object:
    manifests = [change.manifest for change in decision.changes if isinstance(change, Apply)]
    [manifest] = [m for m in manifests if m["metadata"]["name"] == name and kind in {None, m["kind"]}]
    return manifest
