"""What the cluster makes of reservation pods, and what the stack says that they get."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.access.answers.nodes import Node
from cluster.access.answers.server import Objection
from cluster.access.client import Cluster
from config.sharing import TimeSlicingProfile
from config.stack import StackSettings
from gpu_sharing.request import GPU_GROUP
from manifests import kai, reservation
from manifests.admission_objects import binder
from manifests.mutations import Fragment
from manifests.node_labels import GPU_MEMORY
from manifests.objects import Manifest

_FORBIDDEN = 403
_MAY_NOT = "cannot impersonate"
"""In the API server's words where the user may not ask as somebody else."""


def ask(cluster: Cluster, settings: StackSettings, node: str) -> dict[str, Any] | Objection:
    """What the cluster would make of a reservation pod on a node: a dry run as KAI's binder; nothing is stored.

    Raises:
        ClusterError: the API server can't be asked.
    """
    return cluster.dry_run(reservation_pod(settings, node), user=binder(settings))


def may_not_ask(objection: Objection) -> bool:
    """Whether the user may not act as KAI's binder, so that nothing is known of the pod."""
    return objection.code == _FORBIDDEN and _MAY_NOT in objection.message


def shared_nodes(settings: StackSettings, nodes: Mapping[str, Node]) -> list[str]:
    """The nodes whose GPUs KAI shares, by name: those with GPUs or their memory's label, where time is not sliced."""
    sliced = {
        name
        for profile in settings.node_profiles.values()
        if isinstance(profile, TimeSlicingProfile)
        for name in profile.nodes
    }
    return [
        name for name, node in sorted(nodes.items()) if (node.gpus or GPU_MEMORY in node.labels) and name not in sliced
    ]


def expectation(settings: StackSettings, node: str) -> Fragment | None:
    """What is added to a reservation pod on a node; None for nothing."""
    for (rung, folders), nodes in reservation.variants(settings).items():
        if node in nodes:
            return reservation.tegra_fragment(settings, rung, folders)
    return None


def reservation_pod(settings: StackSettings, node: str) -> Manifest:
    """A reservation pod as KAI's binder makes it (KAI v0.18, pkg/binder/binding/resourcereservation)."""
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    gpu = {"nvidia.com/gpu": "1"}
    container = {
        "name": reservation.CONTAINER,
        # The guard knows the registry, which the settings always tell; of a local chart they do not tell the tag.
        "image": kai.image(settings, "resourcereservation") or f"{kai.registry(settings)}/resourcereservation:unknown",
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
        "resources": {"requests": gpu, "limits": gpu},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 10000,
            "capabilities": {"drop": ["all"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "gpu-reservation-kai-anywhere-verify",
            "namespace": reservation.NAMESPACE,
            "labels": {"app": reservation.APP_LABEL, GPU_GROUP: "kai-anywhere-verify"},
        },
        "spec": {
            "nodeName": node,
            "runtimeClassName": reservation.RUNTIME_CLASS,
            "serviceAccountName": reservation.NAMESPACE,
            "containers": [container],
        },
    }


def differences_of(pod: Mapping[str, Any], expected: Fragment | None) -> Iterator[str]:
    """What a pod lacks of what is expected, and what it has that only Tegra may have."""
    spec, container = pod["spec"], own_container(pod)
    privileged = bool((container.get("securityContext") or {}).get("privileged"))
    should = bool(expected and expected.security_context.get("privileged"))
    if privileged != should:
        yield f"privileged is {word(privileged)}; it should be {word(should)}."
    host_paths = {volume["hostPath"]["path"] for volume in spec.get("volumes") or () if "hostPath" in volume}
    allowed = {volume["hostPath"]["path"] for volume in expected.volumes} if expected else set()
    for path in sorted(host_paths - allowed):
        yield f"it has the host path {path}, which it should not have."
    for path in sorted(allowed - host_paths):
        yield f"it lacks the host path {path}."
    if expected is None:
        return
    environment = {variable["name"]: variable.get("value") for variable in container.get("env") or ()}
    for variable in expected.env:
        if environment.get(variable["name"]) != variable["value"]:
            yield f"it lacks the variable {variable['name']}={variable['value']}."
    if spec.get("runtimeClassName") != expected.runtime_class_name:
        yield f"its runtime class is {spec.get('runtimeClassName')}; it should be {expected.runtime_class_name}."


def own_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """KAI's container of a reservation pod; a service mesh may have added others."""
    containers: list[Mapping[str, Any]] = pod["spec"]["containers"]
    return next(container for container in containers if container["name"] == reservation.CONTAINER)


def word(value: bool) -> str:
    """A boolean, as Kubernetes writes it."""
    return "true" if value else "false"
