"""Pods and reviews as an API server sends them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from agents.admission.answers import Mutations
from agents.admission.mutation import Mutation
from agents.admission.review import Request, read
from manifests import admission
from testbed.stacks import ROOT, Json, changed, gvirtus_webhook, parse

NAMESPACE = "kai-resource-reservation"
NODES = frozenset({"jetson-1"})
ENDPOINTS = {"near": "10.96.0.10:9999", "far": "10.96.0.11:9998", "lupine": "10.96.0.12:14833"}
"""Where the backends of `stack` answer."""


def stack() -> Json:
    """A Jetson stack whose server carries both mutations."""
    backend = {"image": "gvirtus/gvirtus:1", "node": "x86-1"}
    backends = {name: backend | ({"kind": "lupine"} if name == "lupine" else {}) for name in ENDPOINTS}
    return changed(changed(gvirtus_webhook(), "gvirtus.backends", backends), "gvirtus.default_backend", "near")


def mutations(of: Json | None = None) -> dict[str, Mutation]:
    """What a stack hands to the server, as the server reads it."""
    documents = admission.server_settings(parse(of or stack()))["mutations"]
    return msgspec.json.decode(json.dumps(documents), type=dict[str, Mutation])


def served(folder: Path = Path("/nonexistent"), *, synced: bool = True) -> Mutations:
    """The mutations of a running server.

    Args:
        folder: where it looks for files of endpoints.
        synced: whether it knows the nodes.
    """
    made = Mutations(mutations(), folder)
    [nodes] = made.nodes
    nodes.names, nodes.synced = NODES, synced
    return made


def reservation_pod(**spec: Any) -> Json:  # noqa: ANN401 - any field
    """KAI's reservation pod."""
    pod: Json = yaml.safe_load((ROOT / "examples/reservation-pod.yaml").read_text(encoding="utf-8"))
    pod["spec"] |= spec
    return pod


def gvirtus_pod(*containers: Json, **annotations: str) -> Json:
    """A pod that asks for a remote GPU."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "app-", "labels": {"gvirtus.io/enabled": "true"}, "annotations": annotations},
        "spec": {"containers": list(containers) or [{"name": "app", "image": "app:1"}]},
    }


def body(pod: object, **changes: object) -> bytes:
    """A review of a pod's creation."""
    request = {
        "uid": "4f3c",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": NAMESPACE,
        "userInfo": {"username": "system:serviceaccount:kai-scheduler:binder"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        **changes,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def request(pod: object, **changes: object) -> Request:
    """The same, read."""
    return read(body(pod, **changes))
