"""What the cluster makes of a reservation pod: asked by a dry run, as KAI's binder, for each node with a GPU."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.answers import Objection
from cluster.client import Cluster
from config.stack import StackSettings
from manifests import kai, reservation
from manifests.admission_objects import binder
from manifests.mutations import Fragment
from manifests.objects import Manifest
from operations.verify.steps import Outcome, Step

NAME = "reservation pods"
_FORBIDDEN = 403
_MAY_NOT = "cannot impersonate"
"""In the API server's words where the user may not ask as somebody else."""


def verify(cluster: Cluster, settings: StackSettings, node: str) -> Step:
    """Ask for one node. Nothing is stored.

    Raises:
        ClusterError: the API server can't be asked.
    """
    expected = expectation(settings, node)
    answer = cluster.dry_run(reservation_pod(settings, node), user=binder(settings))
    if isinstance(answer, Objection):
        if answer.code == _FORBIDDEN and _MAY_NOT in answer.message:
            says = "not verified, since this user may not act as KAI's binder (verb impersonate on serviceaccounts)."
            return Step(name=NAME, place=node, outcome=Outcome.SKIPPED, says=says, evidence=(answer.message,))
        says = "the cluster refuses them, so no pod with a fraction starts on this node."
        return Step(name=NAME, place=node, outcome=Outcome.FAILED, says=says, evidence=(answer.message,))
    differences = tuple(differences_of(answer, expected))
    if differences:
        says = "they are not what the stack says. Put back what was changed: make repair."
        return Step(name=NAME, place=node, outcome=Outcome.FAILED, says=says, evidence=differences)
    says = "as KAI makes them, without privilege." if expected is None else "they get what the stack says."
    return Step(name=NAME, place=node, outcome=Outcome.HELD, says=says, evidence=tuple(_shown(answer)))


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
        "image": kai.image(settings, "resourcereservation") or "registry.invalid/resourcereservation:unknown",
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
            "labels": {"app": reservation.APP_LABEL, "runai-gpu-group": "kai-anywhere-verify"},
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
    spec = pod["spec"]
    [container] = spec["containers"]
    privileged = bool((container.get("securityContext") or {}).get("privileged"))
    wanted_privilege = bool(expected and expected.security_context.get("privileged"))
    if privileged != wanted_privilege:
        yield f"privileged is {_word(privileged)}; it should be {_word(wanted_privilege)}."
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


def _shown(pod: Mapping[str, Any]) -> Iterator[str]:
    spec = pod["spec"]
    [container] = spec["containers"]
    yield f"privileged: {_word(bool((container.get('securityContext') or {}).get('privileged')))}"
    paths = [volume["hostPath"]["path"] for volume in spec.get("volumes") or () if "hostPath" in volume]
    yield f"host paths: {', '.join(paths) or 'none'}"
    yield f"runtime class: {spec.get('runtimeClassName') or 'none'}"


def _word(value: bool) -> str:
    return "true" if value else "false"
