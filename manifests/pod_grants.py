"""What KAI's reservation pods on Tegra nodes may have, as conditions of both guards.

The same as the policy pack grants (policy/grants.py): only KAI's own pod, which runs nothing but KAI's program, and
only what `manifests/reservation.py` adds to it on its node's rung; on the rung `none` that is nothing which needs a
grant. Whoever may impersonate accounts can come by the binder's name, so the name alone grants nothing.
"""

import re
from collections.abc import Callable, Iterable

from config.reservation import Privilege
from config.stack import StackSettings
from manifests import reservation
from manifests.cel import literal
from manifests.kai import registry
from manifests.mutations import Fragment
from manifests.objects import Manifest

_IMAGE_NAMES = ("resourcereservation", "resource-reservation")
"""KAI's program: the published image's name, and the one that KAI's code falls back to (v0.17.0)."""
_NO_WAY_IN = (
    "command",
    "args",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "envFrom",
    "volumeDevices",
)
"""What would let the container run something else than KAI's own program; KAI sets none of them (v0.17, v0.18)."""
_ENVIRONMENT = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
"""KAI's own variables, and the field of the pod that each shows."""
_ACCOUNT_FILES = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes itself mounts the service account's token."""


def is_granted(settings: StackSettings, template: str) -> str:
    """Whether a pod is KAI's reservation pod on a node whose rung needs a grant.

    Args:
        settings: the stack's settings.
        template: the CEL expression of the pod.
    """
    if not granted_nodes(settings):
        return "false"
    conditions = [
        "object.kind == 'Pod'",
        f"request.namespace == {literal(reservation.NAMESPACE)}",
        goes_to_granted(settings, template),
        *marks(settings, template).values(),
    ]
    return " && ".join(conditions)


def may_be_privileged(settings: StackSettings, template: str, granted: str) -> str:
    """Whether the grant of a pod says `privileged` too.

    Args:
        settings: the stack's settings.
        template: the CEL expression of the pod.
        granted: the CEL expression of whether it is granted anything.
    """
    nodes = granted_nodes(settings)
    if Privilege.DEVICES not in nodes:
        return granted
    if Privilege.PRIVILEGED not in nodes:
        return "false"
    return f"{granted} && {goes_to(nodes[Privilege.PRIVILEGED], template)}"


def granted_nodes(settings: StackSettings) -> dict[Privilege, list[str]]:
    """The nodes of each rung that needs a grant, as in `nodes_by_privilege`."""
    nodes = reservation.nodes_by_privilege(settings)
    return {rung: nodes[rung] for rung in nodes if rung in reservation.WITH_HOST_PATHS}


def goes_to(nodes: Iterable[str], pod: str) -> str:
    """Whether a pod has the name of one of these nodes.

    Args:
        nodes: their names.
        pod: the CEL expression of the pod.
    """
    return f"{pod}.spec.?nodeName.orValue('') in {literal(sorted(nodes))}"


def goes_to_granted(settings: StackSettings, pod: str) -> str:
    """Whether a pod has KAI's label and the name of a node whose rung needs a grant.

    Args:
        settings: the stack's settings.
        pod: the CEL expression of the pod.
    """
    nodes = [node for on_rung in granted_nodes(settings).values() for node in on_rung]
    return f"{pod}.metadata.?labels[?'app'].orValue('') == {literal(reservation.APP_LABEL)} && {goes_to(nodes, pod)}"


def marks(settings: StackSettings, pod: str) -> dict[str, str]:
    """What makes a pod with KAI's label KAI's own: CEL conditions, each under the text for a pod that does not meet it.

    Args:
        settings: the settings of a stack with nodes whose rung needs a grant.
        pod: the CEL expression of the pod.
    """
    spec = f"{pod}.spec"
    image = f"^{re.escape(registry(settings))}/({'|'.join(_IMAGE_NAMES)})[:@][^/]+$"
    runtime_class = reservation.RUNTIME_CLASS
    return {
        f"the service account is not {reservation.SERVICE_ACCOUNT}": (
            f"{spec}.?serviceAccountName.orValue('') == {literal(reservation.SERVICE_ACCOUNT)}"
        ),
        f"it has other containers than {reservation.CONTAINER}": (
            f"{spec}.?initContainers.orValue([]).size() == 0 && {spec}.?ephemeralContainers.orValue([]).size() == 0"
            f" && {spec}.containers.size() == 1 && {spec}.containers[0].name == {literal(reservation.CONTAINER)}"
        ),
        f"the image is not {registry(settings)}/{_IMAGE_NAMES[0]} with a tag or digest (kai.images.registry)": (
            f"{spec}.containers.all(c, c.?image.orValue('').matches({literal(image)}))"
        ),
        f"it sets one of {', '.join(_NO_WAY_IN)}": (
            f"{spec}.containers.all(c, {' && '.join(f'!has(c.{field})' for field in _NO_WAY_IN)})"
        ),
        "it has environment variables that are neither KAI's nor the overrides'": _on_each_rung(
            settings, pod, lambda fragment: _has_only_variables(spec, fragment)
        ),
        "it has volumes or mounts beyond the overrides' and its service account's": _on_each_rung(
            settings, pod, lambda fragment: _has_only_volumes(spec, fragment)
        ),
        f"it has another runtime class than {runtime_class}, or resource claims": (
            f"{spec}.?runtimeClassName.orValue('') == {literal(runtime_class)} && !has({spec}.resourceClaims)"
        ),
    }


def _on_each_rung(settings: StackSettings, pod: str, condition: Callable[[Fragment], str]) -> str:
    """A condition on what a pod gets by the rung and the library folders of its own node."""
    granted = granted_nodes(settings)
    conditions = {
        condition(reservation.tegra_fragment(settings, rung, folders)): nodes
        for (rung, folders), nodes in reservation.variants(settings).items()
        if rung in granted
    }
    if len(conditions) == 1:
        return "".join(conditions)
    return f"({_any(f'{goes_to(nodes, pod)} && {expression}' for expression, nodes in conditions.items())})"


def _has_only_variables(spec: str, fragment: Fragment) -> str:
    variables = [
        *(
            f"e.name == {literal(name)} && e.?valueFrom.?fieldRef.?fieldPath.orValue('') == {literal(field)}"
            for name, field in _ENVIRONMENT.items()
        ),
        # KAI sets it with global.fipsMode: only (v0.18).
        "e.name == 'GODEBUG' && !has(e.valueFrom)",
        *(
            f"e.name == {literal(variable['name'])} && e.?value.orValue('') == {literal(variable['value'])}"
            " && !has(e.valueFrom)"
            for variable in fragment.env
        ),
    ]
    return f"{spec}.containers.all(c, c.?env.orValue([]).all(e, {_any(variables)}))"


def _has_only_volumes(spec: str, fragment: Fragment) -> str:
    mounts = [*map(_is_mount, fragment.volume_mounts), f"m.mountPath == {literal(_ACCOUNT_FILES)}"]
    plain_mount = "!has(m.subPath) && !has(m.subPathExpr) && !has(m.mountPropagation) && !has(m.recursiveReadOnly)"
    # A projected one under one of our names would be a driver of somebody else's.
    projected = f"has(v.projected) && !(v.name in {literal([volume['name'] for volume in fragment.volumes])})"
    return (
        f"{spec}.?volumes.orValue([]).all(v, ({projected}) || {_any(map(_is_volume, fragment.volumes))})"
        f" && {spec}.containers.all(c, c.?volumeMounts.orValue([]).all(m, ({_any(mounts)}) && {plain_mount}))"
    )


def _is_volume(volume: Manifest) -> str:
    # A volume without a type comes as the empty one.
    return (
        f"v.name == {literal(volume['name'])} && v.?hostPath.?path.orValue('') == {literal(volume['hostPath']['path'])}"
        " && v.hostPath.?type.orValue('') in ['', 'Directory']"
    )


def _is_mount(mount: Manifest) -> str:
    read_only = "" if mount.get("readOnly") else "!"
    return (
        f"m.name == {literal(mount['name'])} && m.mountPath == {literal(mount['mountPath'])}"
        f" && {read_only}m.?readOnly.orValue(false)"
    )


def _any(conditions: Iterable[str]) -> str:
    return " || ".join(f"({condition})" for condition in conditions)
