"""Pods and reviews as an API server sends them."""

import json
from typing import Any

import msgspec
import yaml

from agents.admission.gvirtus import Backend, Backends
from agents.admission.reservation import Fragment
from agents.admission.review import Request, read
from config.platform import TegraPlatform
from manifests.reservation import fragment_document, tegra_fragment
from testbed.stacks import ROOT, Json, jetson, parse

NAMESPACE = "kai-resource-reservation"
NODES = frozenset({"jetson-1"})
BACKENDS = Backends(
    backends={
        "near": Backend("10.96.0.10", "9999", "gvirtus"),
        "far": Backend("10.96.0.11", "9998", "gvirtus"),
        "lupine": Backend("lupine.gvirtus.svc", "14833", "lupine"),
    },
    default="near",
)


def fragment() -> Fragment:
    """What the Jetson stack hands to the server."""
    platform = parse(jetson()).platform
    assert isinstance(platform, TegraPlatform)
    return msgspec.json.decode(json.dumps(fragment_document(tegra_fragment(platform))), type=Fragment)


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
