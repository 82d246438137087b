"""Reads what a bundle holds: lists beside each other, then logs beside each other; each bounded."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import RootModel, model_validator

from cluster.access.client import Cluster
from cluster.access.lists import Reader
from gpu_sharing.request import GPU_FRACTION, GPU_MEMORY, SCHEDULER
from operations.bundle.clean import Cleaner, Json

OBJECTS = 2000
"""Of one list at most."""
LOG_LINES = 2000
LOG_BYTES = 256 * 1024
"""Of one container at most: the newest ones."""
_READ_BYTES = 4 * LOG_BYTES
"""The API server cuts the newest lines off, not the oldest, so more is read than kept."""
LOGS = 200
"""Containers at most."""

_NAMESPACED = {
    "pods": "/api/v1/namespaces/{}/pods",
    "services": "/api/v1/namespaces/{}/services",
    "events": "/api/v1/namespaces/{}/events",
    "deployments": "/apis/apps/v1/namespaces/{}/deployments",
    "daemonsets": "/apis/apps/v1/namespaces/{}/daemonsets",
    "jobs": "/apis/batch/v1/namespaces/{}/jobs",
}
_ALL_PODS = "all pods"
_POLICIES = "/apis/admissionregistration.k8s.io"
_CLUSTER_WIDE = {
    "runtimeclasses": "/apis/node.k8s.io/v1/runtimeclasses",
    "clusterpolicies": "/apis/nvidia.com/v1/clusterpolicies",
    "gpuclusters": "/apis/nvidia.com/v1alpha1/gpuclusters",
    "nodefeaturerules": "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules",
    "kai-configs": "/apis/kai.scheduler/v1/configs",
    "kai-schedulingshards": "/apis/kai.scheduler/v1/schedulingshards",
    "kai-queues": "/apis/scheduling.run.ai/v2/queues",
    "kai-podgroups": "/apis/scheduling.run.ai/v2alpha2/podgroups",
    "kai-bindrequests": "/apis/scheduling.run.ai/v1alpha2/bindrequests",
    "mutatingwebhookconfigurations": f"{_POLICIES}/v1/mutatingwebhookconfigurations",
    "validatingwebhookconfigurations": f"{_POLICIES}/v1/validatingwebhookconfigurations",
    "mutatingadmissionpolicies": f"{_POLICIES}/v1/mutatingadmissionpolicies",
    "mutatingadmissionpolicies-v1beta1": f"{_POLICIES}/v1beta1/mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings": f"{_POLICIES}/v1/mutatingadmissionpolicybindings",
    "mutatingadmissionpolicybindings-v1beta1": f"{_POLICIES}/v1beta1/mutatingadmissionpolicybindings",
    "validatingadmissionpolicies": f"{_POLICIES}/v1/validatingadmissionpolicies",
    "validatingadmissionpolicybindings": f"{_POLICIES}/v1/validatingadmissionpolicybindings",
}
"""Kinds of this cluster that concern shared GPUs. No Secrets and no ConfigMaps: these hold what others put there."""


class _Object(RootModel[dict[str, Any] | None]):
    """An object without what no bundle has: those of a large cluster are in memory all at once."""

    @model_validator(mode="before")
    @classmethod
    def _slim(cls, content: dict[str, Any]) -> dict[str, Any]:
        content["metadata"].pop("managedFields", None)
        (content.get("status") or {}).pop("images", None)
        return content


class _Tenant(RootModel[dict[str, Any] | None]):
    """A pod that shares a GPU; None for any other."""

    @model_validator(mode="before")
    @classmethod
    def _if_it_shares(cls, pod: dict[str, Any]) -> dict[str, Any] | None:
        annotations = pod["metadata"].get("annotations") or {}
        shares = any(key in annotations for key in (GPU_FRACTION, GPU_MEMORY))
        return pod if shares or (pod.get("spec") or {}).get("schedulerName") == SCHEDULER else None


@dataclass
class Collected:
    """The files of a bundle.

    Attributes:
        files: content by name inside the archive.
        left_out: what is not in it though somebody could look for it, and why.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def collect(cluster: Cluster, namespaces: Iterable[str], cleaner: Cleaner, report: Callable[[str], None]) -> Collected:
    """Read everything that the user may read.

    Args:
        cluster: where.
        namespaces: of KAI, the GPU Operator, reservation pods and this program.
        cleaner: of this bundle.
        report: is told what happens, a line each.

    Raises:
        ClusterUnreachableError: the API server does not answer.
    """
    names = sorted(set(namespaces))
    collected = Collected()
    report(f"Objects of {', '.join(names)}, and those of the cluster that concern shared GPUs")
    paths = {f"{kind}.{name}": path.format(name) for name in names for kind, path in _NAMESPACED.items()}
    lists = _read(cluster, paths | _CLUSTER_WIDE | {"nodes": "/api/v1/nodes", _ALL_PODS: "/api/v1/pods"}, collected)
    pods = [pod for name in names for pod in lists.get(f"pods.{name}", ())]
    for what, objects in sorted(lists.items()):
        match what:
            case "nodes":
                cleaned = [cleaner.node(node) for node in objects]
            case "all pods":
                what = "pods-that-share-gpus"  # noqa: PLW2901 - the file's name
                cleaned = [cleaner.tenant(pod) for pod in objects if pod["metadata"]["namespace"] not in names]
            case "kai-podgroups" | "kai-bindrequests":
                cleaned = [cleaner.of_tenants(manifest) for manifest in objects]
            case _:
                cleaned = [cleaner.component(manifest) for manifest in objects]
        if cleaned:
            _keep(collected, f"objects/{what}.json", what, cleaned)
    _logs(cluster, pods, cleaner, collected, report)
    return collected


def _keep(collected: Collected, file: str, what: str, objects: list[Json]) -> None:
    if len(objects) > OBJECTS:
        collected.left_out.append(f"{what}: {len(objects) - OBJECTS} of {len(objects)}, since {OBJECTS} are the most")
    collected.files[file] = json.dumps(objects[:OBJECTS], indent=1).encode()


def _read(cluster: Cluster, paths: Mapping[str, str], collected: Collected) -> dict[str, list[dict[str, Any]]]:
    with Reader(cluster) as reader:
        answers = {
            what: reader.objects(what, path, _Tenant if what == _ALL_PODS else _Object) for what, path in paths.items()
        }
        lists = {what: [item.root for item in answer() if item.root is not None] for what, answer in answers.items()}
    collected.left_out += map(str, reader.unseen)
    return lists


def _logs(
    cluster: Cluster,
    pods: list[dict[str, Any]],
    cleaner: Cleaner,
    collected: Collected,
    report: Callable[[str], None],
) -> None:
    containers = [
        (pod["metadata"]["namespace"], pod["metadata"]["name"], status["name"], previous)
        for pod in pods
        for kind in ("initContainerStatuses", "containerStatuses")
        for status in (pod.get("status") or {}).get(kind) or ()
        for previous in ((False, True) if status.get("restartCount") else (False,))
    ]
    if len(containers) > LOGS:
        collected.left_out.append(
            f"logs: {len(containers) - LOGS} of {len(containers)} containers, since {LOGS} are the most"
        )
    report(f"Logs of {min(len(containers), LOGS)} containers")

    read = partial(cluster.log, lines=LOG_LINES, limit_bytes=_READ_BYTES)
    # The API server asks the kubelets, and for one of a host that is off it is waited longer than for an answer.
    with Reader(cluster, insists=False) as reader:
        answers = {
            name: reader.ask(name, "", read, namespace, pod, container=container, previous=previous)
            for namespace, pod, container, previous in containers[:LOGS]
            for name in [f"logs/{namespace}/{pod}.{container}{'.previous' if previous else ''}.log"]
        }
        for name, answer in answers.items():
            if text := answer():
                collected.files[name] = cleaner.text(text).encode()[-LOG_BYTES:]
    collected.left_out += map(str, reader.unseen)
