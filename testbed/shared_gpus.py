"""Clusters whose GPUs are shared, as the API server shows them: what `status` and `doctor` are measured on."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
POD_GROUPS = "/apis/scheduling.run.ai/v2alpha2/podgroups"
BIND_REQUESTS = "/apis/scheduling.run.ai/v1alpha2/bindrequests"
CONFIGS = "/apis/kai.scheduler/v1/configs"
RESERVATIONS = "kai-resource-reservation"
CREATED = "2026-11-01T10:00:00Z"
_MEMORY = "nvidia.com/gpu.memory"
_COUNT = "nvidia.com/gpu.count"

Manifest = dict[str, Any]
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CONFIG = {
    "namespace": "kai-scheduler",
    "global": {"schedulerName": "kai-scheduler", "gpuSharingMode": "NonMemoryEnforced"},
    "binder": {"resourceReservation": {"namespace": RESERVATIONS, "runtimeClassName": "nvidia"}},
}


def gpu_node(
    name: str,
    *,
    memory_mib: int | None = 131072,
    gpus: int = 1,
    advertised: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Manifest:
    """A node.

    Args:
        name: of the node.
        memory_mib: of its memory label; None for none.
        gpus: physical ones.
        advertised: allocatable `nvidia.com/gpu`, where that differs.
        labels: more labels.
    """
    node_labels = {"kubernetes.io/hostname": name, "kai-anywhere.io/platform": "tegra", _COUNT: str(gpus)}
    node_labels |= {} if memory_mib is None else {_MEMORY: str(memory_mib)}
    node_labels |= labels or {}
    return {
        "metadata": {
            "name": name,
            "uid": _uid(name),
            "labels": node_labels,
            "managedFields": [_written("kai-anywhere", labels=node_labels)],
            "creationTimestamp": CREATED,
        },
        "spec": {"podCIDR": "10.42.0.0/24"},
        "status": {
            "nodeInfo": {"architecture": "arm64", "kubeletVersion": "v1.36.2", "kernelVersion": "6.8.12-tegra"},
            "capacity": {"memory": "128Gi", "cpu": "14"},
            "allocatable": {"nvidia.com/gpu": str(gpus if advertised is None else advertised), "cpu": "14"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False", "lastTransitionTime": CREATED},
                {"type": "Ready", "status": "True", "lastTransitionTime": CREATED, "reason": "KubeletReady"},
            ],
        },
    }


def frontend(name: str) -> Manifest:
    """A node without a GPU that advertises eight, which stand for remote ones."""
    manifest = gpu_node(name, gpus=8, memory_mib=None, labels={"gvirtus.io/frontend.allowed": "true"})
    del manifest["metadata"]["labels"][_COUNT]
    return manifest


def pod(  # noqa: PLR0913 - what makes a pod
    name: str,
    *,
    namespace: str = "robots",
    node: str | None = "jetson-1",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    phase: str = "Running",
    queue: str | None = "robots",
) -> Manifest:
    """A pod of KAI's.

    Args:
        name: of the pod.
        namespace: its namespace.
        node: where it is; None while it waits.
        annotations: by which it asks for a share.
        labels: more labels, as those of its GPU groups.
        limits: resources of its container.
        phase: its phase.
        queue: of KAI.
    """
    pod_labels = {"app": name, **({"kai.scheduler/queue": queue} if queue else {}), **(labels or {})}
    scheduled = {"type": "PodScheduled", "status": "True" if node else "False", "lastTransitionTime": CREATED}
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False", "lastTransitionTime": CREATED}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": _uid(f"{namespace}/{name}"),
            "labels": pod_labels,
            "annotations": dict(annotations or {}),
            "creationTimestamp": CREATED,
            "ownerReferences": [{"kind": "ReplicaSet", "name": name, "apiVersion": "apps/v1", "uid": _uid(name)}],
            "managedFields": [_written("kube-controller-manager", labels=pod_labels, annotations=annotations or {})],
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "main", "image": "ubuntu:24.04", "resources": {"limits": dict(limits or {})}}],
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ],
        },
        "status": {"phase": phase, "conditions": [scheduled, ready] if node else [scheduled]},
    }


def share(name: str, group: str, *, mib: int = 30000, **others: Any) -> Manifest:  # noqa: ANN401 - those of `pod`
    """A pod with so many MiB of the GPU of a group."""
    return pod(name, annotations={"gpu-memory": str(mib)}, labels={"runai-gpu-group": group}, **others)


def reservation(
    group: str, *, node: str = "jetson-1", uuid: str | None = "GPU-1111", phase: str = "Running"
) -> Manifest:
    """The pod that holds a GPU for a group; it has not answered yet where the UUID is None."""
    annotations = {} if uuid is None else {"run.ai/reserve_for_gpu_index": uuid}
    return pod(
        f"gpu-reservation-{sha256(f'{node}/{group}'.encode()).hexdigest()[:16]}",
        namespace=RESERVATIONS,
        node=node,
        annotations=annotations,
        labels={"app": RESERVATIONS, "runai-gpu-group": group},
        limits={"nvidia.com/gpu": "1"},
        phase=phase,
        queue=None,
    )


def queue(name: str, parent: str = "", *, quota: float = -1, limit: float = -1, used: str | None = None) -> Manifest:
    """A queue; `used` is what the queue controller says."""
    return {
        "metadata": {"name": name},
        "spec": {
            **({"parentQueue": parent} if parent else {}),
            "resources": {"gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1}},
        },
        "status": {} if used is None else {"allocated": {"nvidia.com/gpu": used}},
    }


def fleet(nodes: int, pods_of_node: int = 5) -> Mapping[str, list[Manifest]]:
    """A cluster of equal nodes: the answers by path. Of the pods of a node four have a share, and the rest wait."""
    running = min(pods_of_node, 4)
    pods = []
    for index in range(nodes):
        name, group = f"jetson-{index}", _uid(f"group-{index}")
        pods.append(reservation(group, node=name, uuid=f"GPU-{_uid(name)}"))
        pods += [share(f"arm-{index}-{part}", group, node=name) for part in range(running)]
        pods += [waiting(f"arm-{index}-{part}") for part in range(running, pods_of_node)]
    return {
        NODES: [gpu_node(f"jetson-{index}") for index in range(nodes)],
        PODS: pods,
        QUEUES: [queue("all"), queue("robots", "all", quota=nodes / 2, used=f"{nodes * 0.92:.2f}")],
        POD_GROUPS: [],
        BIND_REQUESTS: [],
        CONFIGS: [],
    }


def installed(nodes: int) -> Mapping[str, list[Manifest]]:
    """The same cluster with KAI's control plane and the GPU Operator's device plugin, well: the answers by path."""
    kai = ("kai-operator", "binder", "pod-grouper", "podgroup-controller", "queue-controller", "admission")
    plugin = {"app": "nvidia-device-plugin-daemonset"}
    answers = fleet(nodes)
    device_plugins = [
        pod(f"plugin-{index}", namespace="gpu-operator", node=f"jetson-{index}", labels=plugin, queue=None)
        for index in range(nodes)
    ]
    for plugin_pod in device_plugins:
        plugin_pod["metadata"]["labels"] |= plugin
        plugin_pod["spec"]["schedulerName"] = "default-scheduler"
    webhooks = [{"name": "pods.example.com", "failurePolicy": "Ignore"}]
    ready = {"desiredNumberScheduled": nodes, "numberReady": nodes}
    control_plane: dict[str, list[Manifest]] = {
        PODS: [*answers[PODS], *device_plugins],
        "/api/v1/namespaces/kai-scheduler/secrets": [],
        "/api/v1/namespaces/gpu-operator/secrets": [],
        "/apis/apps/v1/deployments": [
            *(_deployment(name, "kai-scheduler") for name in (*kai, "kai-scheduler-default")),
            _deployment("gpu-operator", "gpu-operator"),
        ],
        "/apis/apps/v1/daemonsets": [
            {
                "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "gpu-operator"},
                "spec": {"selector": {"matchLabels": plugin}},
                "status": ready,
            }
        ],
        "/apis/node.k8s.io/v1/runtimeclasses": [{"metadata": {"name": "nvidia"}}],
        CONFIGS: [{"metadata": {"name": "kai-config"}, "spec": _CONFIG}],
        "/apis/kai.scheduler/v1/schedulingshards": [{"metadata": {"name": "default"}}],
        "/apis/nvidia.com/v1/clusterpolicies": [
            {
                "metadata": {"name": "cluster-policy", "labels": {"app.kubernetes.io/version": "v26.7.2"}},
                "status": {"state": "ready"},
            }
        ],
        f"{_ADMISSION}/mutatingwebhookconfigurations": [
            {"metadata": {"name": "mutating-kai-admission"}, "webhooks": webhooks}
        ],
        f"{_ADMISSION}/validatingwebhookconfigurations": [
            {"metadata": {"name": "validating-kai-admission"}, "webhooks": webhooks}
        ],
    }
    return {**answers, **control_plane}


def kinds() -> Iterator[tuple[str, Manifest]]:
    """The kinds of KAI's that the API server knows: the answers by path of their API group's version."""
    for group, plurals in (
        ("scheduling.run.ai/v2", ["queues"]),
        ("scheduling.run.ai/v2alpha2", ["podgroups"]),
        ("scheduling.run.ai/v1alpha2", ["bindrequests"]),
        ("kai.scheduler/v1", ["configs", "schedulingshards"]),
    ):
        yield f"/apis/{group}", {"resources": [{"name": plural} for plural in plurals]}


def _deployment(name: str, namespace: str) -> Manifest:
    container = {"name": name, "image": "example.com/image:v0.18.6"}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"spec": {"containers": [container]}},
        },
        "status": {"availableReplicas": 1},
    }


def waiting(name: str, *, mib: int = 30000, message: str = "no node has the GPU memory") -> Manifest:
    """A pod that KAI can't place."""
    manifest = pod(name, node=None, annotations={"gpu-memory": str(mib)}, phase="Pending")
    manifest["status"]["conditions"][0] |= {"reason": "Unschedulable", "message": message}
    return manifest


def pages(items: list[Manifest], size: int = 500) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A list as the API server gives it out: each page with the token by which it is asked for."""
    for start in range(0, len(items) or 1, size):
        after = {"continue": f"from-{start + size}"} if start + size < len(items) else {}
        yield (
            f"from-{start}" if start else "",
            {"kind": "List", "metadata": after, "items": items[start : start + size]},
        )


def _written(manager: str, **parts: Mapping[str, str]) -> Manifest:
    metadata: Manifest = {f"f:{part}": {f"f:{name}": {} for name in names} for part, names in parts.items() if names}
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": "v1",
        "time": CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": metadata},
    }


def _uid(of: str) -> str:
    text = sha256(of.encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
