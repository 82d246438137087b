"""The GPU Operator: labels GPU nodes, owns the RuntimeClass, creates the operands that ClusterPolicy enables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.operands.world import (
    Change,
    Decision,
    Delete,
    Merge,
    Object,
    Ref,
    World,
    at,
    find,
    has_condition,
    keep,
    labels,
    owner_reference,
    terminating,
)

PRESENT = "nvidia.com/gpu.present"
DEPLOY = "nvidia.com/gpu.deploy."
ALL_OPERANDS = "nvidia.com/gpu.deploy.operands"
"""A user's switch for a whole node; the operator reads it and never sets it."""

_NFD_GPU_LABELS = tuple(
    f"feature.node.kubernetes.io/pci-{device}.present" for device in ("10de", "0302_10de", "0300_10de")
)
_STATE_LABELS = tuple(
    DEPLOY + operand
    for operand in (
        "driver",
        "gpu-feature-discovery",
        "container-toolkit",
        "device-plugin",
        "dcgm",
        "dcgm-exporter",
        "node-status-exporter",
        "operator-validator",
        "client",
    )
)
_MIG_MANAGER = DEPLOY + "mig-manager"


@dataclass(frozen=True)
class Operand:
    """One DaemonSet: `spec` is its key in ClusterPolicy, `default` what a missing `enabled` means there.

    It runs where the operator's switch `label` is on and, where it says so, the node is `capable` too.
    """

    spec: str
    name: str
    label: str
    default: bool = True
    runtime_class: bool = True
    capable: str | None = None


OPERANDS = (
    Operand("driver", "nvidia-driver-daemonset", "driver", runtime_class=False),
    Operand("toolkit", "nvidia-container-toolkit-daemonset", "container-toolkit", runtime_class=False),
    Operand("devicePlugin", "nvidia-device-plugin-daemonset", "device-plugin"),
    # Made wherever the plugin is; GPU Feature Discovery marks the nodes whose profile shares by MPS.
    Operand(
        "devicePlugin",
        "nvidia-device-plugin-mps-control-daemon",
        "device-plugin",
        capable="nvidia.com/mps.capable",
    ),
    Operand("gfd", "gpu-feature-discovery", "gpu-feature-discovery"),
    Operand("dcgm", "nvidia-dcgm", "dcgm"),
    Operand("dcgmExporter", "nvidia-dcgm-exporter", "dcgm-exporter"),
    Operand("migManager", "nvidia-mig-manager", "mig-manager"),
    Operand("nodeStatusExporter", "nvidia-node-status-exporter", "node-status-exporter", False, runtime_class=False),
    Operand("validator", "nvidia-operator-validator", "operator-validator"),
)


def decide(world: World) -> Decision:
    """One reconciliation; nothing happens without an available operator and its ClusterPolicy."""
    operator = _available_operator(world)
    policy = find(world.cluster_policies, "cluster-policy")
    if operator is None or policy is None or terminating(policy):
        return Decision()
    namespace = operator["metadata"]["namespace"]
    changes: list[Change] = [*_node_changes(world.nodes), *_runtime_classes(policy, world)]
    # Without a GPU node the operator creates no DaemonSet, and deletes none either.
    has_gpu_nodes = any(labels(node).get(PRESENT) == "true" for node in world.nodes)
    for operand in OPERANDS:
        daemon_set = find(world.daemon_sets, operand.name, namespace)
        if _enabled(policy, operand):
            if has_gpu_nodes:
                changes += keep(_daemon_set(operand, policy, namespace), world.daemon_sets)
        elif daemon_set is not None and not terminating(daemon_set):
            changes.append(Delete(Ref("apps/v1", "DaemonSet", operand.name, namespace)))
    changes += _services(policy, namespace, world)
    changes += _state(policy, namespace, world, has_gpu_nodes=has_gpu_nodes)
    return Decision(tuple(changes))


def label_changes(current: Mapping[str, str]) -> dict[str, str | None]:
    """What the operator sets (None: removes) among a node's labels, in one go."""
    has_gpu = any(current.get(label) == "true" for label in _NFD_GPU_LABELS)
    present = current.get(PRESENT) == "true"
    changes: dict[str, str | None] = {}
    if has_gpu != present:
        changes[PRESENT] = "true" if has_gpu else "false"
    if has_gpu and current.get(ALL_OPERANDS) != "false":
        operand_labels = (
            (*_STATE_LABELS, _MIG_MANAGER) if current.get("nvidia.com/mig.capable") == "true" else _STATE_LABELS
        )
        # A value that somebody set, "false" above all, is respected.
        return changes | {label: "true" for label in operand_labels if not current.get(label)}
    return changes | {label: None for label in (*_STATE_LABELS, _MIG_MANAGER) if label in current}


def _available_operator(world: World) -> Object | None:
    for deployment in world.deployments:
        selects = at(deployment, "spec", "selector", "matchLabels", "app")
        if deployment["metadata"]["name"] == "gpu-operator" and selects == "gpu-operator":
            # Without pods a Deployment says that it is available.
            runs = at(deployment, "spec", "replicas") != 0 and has_condition(deployment, "Available")
            return deployment if runs else None
    return None


def _node_changes(nodes: tuple[Object, ...]) -> list[Change]:
    return [
        Merge(Ref("v1", "Node", node["metadata"]["name"]), {"metadata": {"labels": changes}})
        for node in nodes
        if (changes := label_changes(labels(node)))
    ]


def _runtime_class_name(policy: Object) -> str | None:
    """The class that the operator's operands use; in NRI mode there is none."""
    if at(policy, "spec", "cdi", "nriPluginEnabled") is True:
        return None
    return at(policy, "spec", "operator", "runtimeClass") or "nvidia"


def _runtime_classes(policy: Object, world: World) -> Iterator[Change]:
    """The classes that the operator owns (assets/pre-requisites): its own, and two more while CDI is on."""
    name = _runtime_class_name(policy)
    cdi = at(policy, "spec", "cdi", "enabled") is not False
    class_names = () if name is None else (name, *(("nvidia-cdi", "nvidia-legacy") if cdi else ()))
    for existing in world.runtime_classes:
        metadata = existing["metadata"]
        owned = any(owner["uid"] == policy["metadata"]["uid"] for owner in metadata.get("ownerReferences") or ())
        if owned and metadata["name"] not in class_names:
            yield Delete(Ref("node.k8s.io/v1", "RuntimeClass", metadata["name"]))
    for class_name in class_names:
        runtime_class = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {
                "name": class_name,
                "labels": {"app.kubernetes.io/component": "gpu-operator"},
                "ownerReferences": [owner_reference(policy)],
            },
            "handler": class_name,
        }
        yield from keep(runtime_class, world.runtime_classes)


def _enabled(policy: Object, operand: Operand) -> bool:
    enabled = at(policy, "spec", operand.spec, "enabled")
    return operand.default if enabled is None else bool(enabled)


def _daemon_set(operand: Operand, policy: Object, namespace: str) -> Object:
    spec: Mapping[str, Any] = at(policy, "spec", operand.spec) or {}
    common: Mapping[str, Any] = at(policy, "spec", "daemonsets") or {}
    selector = {"app": operand.name}
    pod: dict[str, Any] = {
        "nodeSelector": {DEPLOY + operand.label: "true", **({operand.capable: "true"} if operand.capable else {})},
        "tolerations": common.get("tolerations")
        or [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": common.get("priorityClassName") or "system-node-critical",
        "containers": [
            {
                "name": operand.name,
                "image": _image(spec, operand.name),
                "imagePullPolicy": spec.get("imagePullPolicy") or "IfNotPresent",
                "env": spec.get("env") or [],
            }
        ],
    }
    runtime_class = _runtime_class_name(policy)
    if operand.runtime_class and runtime_class:
        pod["runtimeClassName"] = runtime_class
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": operand.name,
            "namespace": namespace,
            "labels": selector,
            "ownerReferences": [owner_reference(policy)],
        },
        "spec": {
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {
                    "labels": {**(common.get("labels") or {}), **selector},
                    "annotations": common.get("annotations") or {},
                },
                "spec": pod,
            },
        },
    }


def _image(spec: Mapping[str, Any], name: str) -> str:
    path = "/".join(part for part in (spec.get("repository"), spec.get("image") or name) if part)
    version = spec.get("version") or "latest"
    return f"{path}@{version}" if version.startswith("sha256:") else f"{path}:{version}"


def _services(policy: Object, namespace: str, world: World) -> list[Change]:
    changes: list[Change] = list(keep(_service(policy, namespace, "gpu-operator", 8080), world.services))
    exporter = next(operand for operand in OPERANDS if operand.spec == "dcgmExporter")
    if _enabled(policy, exporter):
        changes += keep(_service(policy, namespace, exporter.name, 9400), world.services)
    elif find(world.services, exporter.name, namespace):
        changes.append(Delete(Ref("v1", "Service", exporter.name, namespace)))
    return changes


def _service(policy: Object, namespace: str, name: str, port: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": name},
            "ownerReferences": [owner_reference(policy)],
        },
        "spec": {
            "selector": {"app": name},
            "ports": [{"name": "gpu-metrics", "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }


def _state(policy: Object, namespace: str, world: World, *, has_gpu_nodes: bool) -> tuple[Merge, ...]:
    daemon_sets = [
        find(world.daemon_sets, operand.name, namespace) for operand in OPERANDS if _enabled(policy, operand)
    ]
    ready = not has_gpu_nodes or all(daemon_set is not None and _rolled_out(daemon_set) for daemon_set in daemon_sets)
    status = {"state": "ready" if ready else "notReady", "namespace": namespace}
    if all(at(policy, "status", key) == value for key, value in status.items()):
        return ()
    return (Merge(Ref("nvidia.com/v1", "ClusterPolicy", policy["metadata"]["name"]), {"status": status}, status=True),)


def _rolled_out(daemon_set: Object) -> bool:
    status = daemon_set.get("status") or {}
    desired = status.get("desiredNumberScheduled", 0)
    observed = status.get("observedGeneration", 0) >= daemon_set["metadata"].get("generation", 0)
    return bool(observed) and desired == status.get("numberReady", 0) == status.get("updatedNumberScheduled", 0)
