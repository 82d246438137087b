"""What KAI's reservation pods on Tegra nodes may have, as conditions of both guards.

The same as the policy pack grants (policy/grants.py): only KAI's own pod, which runs nothing but KAI's program, and
only what `manifests/reservation.py` adds to it. Whoever may impersonate accounts can come by the binder's name, so the
name alone grants nothing.
"""

import re
from collections.abc import Iterable

from config.platform import TegraPlatform
from config.stack import StackSettings
from manifests import reservation
from manifests.cel import literal
from manifests.kai import registry
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
    """Whether a pod is KAI's reservation pod on a node with overrides.

    Args:
        settings: the stack's settings.
        template: the CEL expression of the pod.
    """
    platform = settings.overridden_platform
    if platform is None:
        return "false"
    conditions = [
        "object.kind == 'Pod'",
        f"request.namespace == {literal(reservation.NAMESPACE)}",
        goes_to_tegra(platform, template),
        *marks(settings, platform, template).values(),
    ]
    return " && ".join(conditions)


def goes_to_tegra(platform: TegraPlatform, pod: str) -> str:
    """Whether a pod has KAI's label and the name of a Tegra node.

    Args:
        platform: the stack's platform.
        pod: the CEL expression of the pod.
    """
    return (
        f"{pod}.metadata.?labels[?'app'].orValue('') == {literal(reservation.APP_LABEL)}"
        f" && {pod}.spec.?nodeName.orValue('') in {literal(sorted(platform.tegra_nodes))}"
    )


def marks(settings: StackSettings, platform: TegraPlatform, pod: str) -> dict[str, str]:
    """What makes a pod with KAI's label KAI's own: CEL conditions, each under the text for a pod that does not meet it.

    Args:
        settings: the stack's settings.
        platform: the stack's platform.
        pod: the CEL expression of the pod.
    """
    fragment = reservation.tegra_fragment(platform)
    given = [(each["name"], each["value"]) for each in fragment.env]
    runtime_class = fragment.runtime_class_name
    spec = f"{pod}.spec"
    image = f"^{re.escape(registry(settings))}/({'|'.join(_IMAGE_NAMES)})[:@][^/]+$"
    variables = [
        *(
            f"e.name == {literal(name)} && e.?valueFrom.?fieldRef.?fieldPath.orValue('') == {literal(field)}"
            for name, field in _ENVIRONMENT.items()
        ),
        # KAI sets it with global.fipsMode: only (v0.18).
        "e.name == 'GODEBUG' && !has(e.valueFrom)",
        *(
            f"e.name == {literal(name)} && e.?value.orValue('') == {literal(value)} && !has(e.valueFrom)"
            for name, value in given
        ),
    ]
    mounts = [*map(_is_mount, fragment.volume_mounts), f"m.mountPath == {literal(_ACCOUNT_FILES)}"]
    plain_mount = "!has(m.subPath) && !has(m.subPathExpr) && !has(m.mountPropagation) && !has(m.recursiveReadOnly)"
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
        "it has environment variables that are neither KAI's nor the overrides'": (
            f"{spec}.containers.all(c, c.?env.orValue([]).all(e, {_any(variables)}))"
        ),
        "it has volumes or mounts beyond the overrides' and its service account's": (
            f"{spec}.?volumes.orValue([]).all(v, has(v.projected) || {_any(map(_is_volume, fragment.volumes))})"
            f" && {spec}.containers.all(c, c.?volumeMounts.orValue([]).all(m, ({_any(mounts)}) && {plain_mount}))"
        ),
        f"it has another runtime class than {runtime_class}, or resource claims": (
            f"{spec}.?runtimeClassName.orValue('') == {literal(runtime_class)} && !has({spec}.resourceClaims)"
        ),
    }


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
