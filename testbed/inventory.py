"""Everything that a cluster holds, for tests of what is left behind."""

from typing import Any

import httpx2
from lightkube import KubeConfig
from lightkube.config import client_adapter
from lightkube.config.models import User

import simulator
from testbed.waiting import eventually

_ANSWER_SECONDS = 60
"""Bound of an answer: pods of twenty thousand entries took more than 5 s on a busy machine."""
_COME_AND_GO = frozenset(
    {"events", "leases", "endpoints", "endpointslices", "componentstatuses", "controllerrevisions"}
)

_MADE_WITH_EVERY_NAMESPACE = frozenset({("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")})
_OURS = (
    "kai-anywhere.io/",
    "gvirtus.io/",
    "kai.scheduler/",
    "/nvidia.com/gpu.memory",
    "/nvidia.com/gpu.count",
    "=false",
)
_LABELS_OF_GPUS = ("kai-anywhere.io/", "gvirtus.io/", "kai.scheduler/", "nvidia.com/", "feature.node.kubernetes.io/")


def connect(control_plane: simulator.ControlPlane, token: str | None = None) -> httpx2.Client:
    """A raw HTTP connection to the API server, as the cluster's administrator or by a service account's token."""
    config = KubeConfig.from_file(control_plane.kubeconfig).get()
    assert config is not None
    if token is not None:
        config = config._replace(user=User(token=token))
    connection = client_adapter.ConnectionParams(timeout=httpx2.Timeout(_ANSWER_SECONDS), trust_env=False)
    return client_adapter.Client(config, connection)


def inventory(api: httpx2.Client) -> set[str]:
    """`kind/namespace/name` of every object, and `Node/name/label=value` of every node's labels that concern GPUs.

    Left out is what the cluster's own controllers add in their own time, and CustomResourceDefinitions with what serves
    them: Helm never deletes the definitions of a chart's crds/ folder.
    """
    objects: set[str] = set()
    groups = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in _get(api, "/apis")["groups"]]
    for prefix in ["/api/v1", *groups]:
        for resource in _get(api, prefix)["resources"]:
            name = resource["name"]
            if "/" in name or "list" not in resource["verbs"] or name in _COME_AND_GO:
                continue
            if resource["kind"] in {"CustomResourceDefinition", "APIService"}:
                continue
            for item in _get(api, f"{prefix}/{name}")["items"]:
                metadata = item["metadata"]
                if (resource["kind"], metadata["name"]) in _MADE_WITH_EVERY_NAMESPACE:
                    continue
                objects.add(f"{resource['kind']}/{metadata.get('namespace', '')}/{metadata['name']}")
                if resource["kind"] == "Node":
                    labels = metadata["labels"].items()
                    objects |= {
                        f"Node/{metadata['name']}/{key}={value}"
                        for key, value in labels
                        if key.startswith(_LABELS_OF_GPUS)
                    }
    return objects


def left_behind(api: httpx2.Client, before: set[str]) -> set[str]:
    """What a cluster has more than before; of nodes only labels of ours.

    Others label nodes too: the node controller, and the GPU Operator, whose gpu.present=false stays.
    """
    return {
        item
        for item in inventory(api) - before
        if not item.startswith("Node/") or (any(mark in item for mark in _OURS) and "gpu.present" not in item)
    }


def mutating_webhooks(api: httpx2.Client) -> set[str]:
    """Names of the MutatingWebhookConfigurations, but for those of KAI's operator."""
    items = _get(api, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations")["items"]
    made_by = "app.kubernetes.io/managed-by"
    return {
        item["metadata"]["name"] for item in items if item["metadata"].get("labels", {}).get(made_by) != "kai-operator"
    }


def _get(api: httpx2.Client, path: str) -> dict[str, Any]:
    answers: list[httpx2.Response] = []

    def is_served() -> bool:
        # One that has just learned of a kind asks to come again until it has read the objects (Kubernetes v1.36).
        answers.append(api.get(path))
        return answers[-1].status_code != httpx2.codes.TOO_MANY_REQUESTS

    eventually(is_served, within_seconds=30)
    answer: dict[str, Any] = answers[-1].raise_for_status().json()
    return answer
