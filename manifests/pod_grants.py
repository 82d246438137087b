"""What KAI's reservation pods on Tegra nodes may have, as conditions of the guard of all pods.

The same as the policy pack grants (policy/grants.py): only KAI's own pod, which runs nothing but KAI's program, and
only what `manifests/reservation.py` adds to it.
"""

from config.platform import TegraPlatform
from config.stack import StackSettings
from manifests import reservation
from manifests.cel import literal
from manifests.reservation import HostDirectory

_IMAGE = "^(.*/)?(resourcereservation|resource-reservation)([:@][^/]*)?$"
"""KAI's program: the published image's name, and the one that KAI's code falls back to (v0.17.0)."""


def is_granted(settings: StackSettings, template: str) -> str:
    """Whether a pod is KAI's reservation pod on a node with overrides.

    Args:
        settings: the stack's settings.
        template: the CEL variable that holds the pod.
    """
    nodes: list[str] = []
    if settings.overrides_apply and isinstance(settings.platform, TegraPlatform):
        nodes = sorted(settings.platform.tegra_nodes)
    spec = f"{template}.spec"
    # What would let the container run something else than KAI's own program.
    no_way_in = "!has(c.command) && !has(c.args) && !has(c.lifecycle) && !has(c.envFrom)"
    conditions = [
        "object.kind == 'Pod'",
        f"request.namespace == {literal(reservation.NAMESPACE)}",
        f"{template}.metadata.?labels[?'app'].orValue('') == {literal(reservation.APP_LABEL)}",
        f"{spec}.?nodeName.orValue('') in {literal(nodes)}",
        f"{spec}.?serviceAccountName.orValue('') == {literal(reservation.SERVICE_ACCOUNT)}",
        f"{spec}.?initContainers.orValue([]).size() == 0",
        f"{spec}.?ephemeralContainers.orValue([]).size() == 0",
        f"{spec}.containers.size() == 1",
        f"{spec}.containers.all(c, c.name == {literal(reservation.CONTAINER)} && {no_way_in}",
        f"c.image.matches({literal(_IMAGE)}))",
    ]
    return " && ".join(conditions)


def is_granted_volume(settings: StackSettings, volume: str, template: str) -> str:
    """Whether a volume of such a pod is one of the host folders that the overrides add, mounted as they mount it.

    Args:
        settings: the stack's settings.
        volume: the CEL expression of the volume.
        template: the CEL expression of its pod.
    """
    if not (settings.overrides_apply and isinstance(settings.platform, TegraPlatform)):
        return "false"
    directories = reservation.tegra_fragment(settings.platform).directories
    return " || ".join(f"({_is_directory(each, volume, template)})" for each in directories)


def _is_directory(directory: HostDirectory, volume: str, template: str) -> str:
    read_only = "" if directory.read_only else "!"
    return (
        f"{volume}.name == {literal(directory.name)} && {volume}.hostPath.path == {literal(directory.path)}"
        # A volume without a type comes as the empty one.
        f" && {volume}.hostPath.?type.orValue('') in ['', 'Directory']"
        f" && {template}.spec.containers[0].?volumeMounts.orValue([]).filter(m, m.name == {literal(directory.name)})"
        f".all(m, m.mountPath == {literal(directory.path)} && {read_only}m.?readOnly.orValue(false) && !has(m.subPath)"
        " && !has(m.subPathExpr) && !has(m.mountPropagation) && !has(m.recursiveReadOnly))"
    )
