"""What manifests/gvirtus/frontends.py says in CEL, said once more in Python: the judge of what an API server makes."""

from config.gvirtus import FRONTEND_ALLOWED
from manifests.gvirtus.injection import ENABLED_LABEL
from manifests.node_labels import GPU_PRESENT
from manifests.objects import Manifest


def place(pod: Manifest) -> Manifest:
    """The pod with a node selector for its kind of GPU; the same pod if it asks for none, or its node is chosen."""
    selector = pod["spec"].get("nodeSelector") or {}
    label = _wanted_label(pod)
    if label is None or pod["spec"].get("nodeName") or label in selector:
        return pod
    return pod | {"spec": pod["spec"] | {"nodeSelector": selector | {label: "true"}}}


def _wanted_label(pod: Manifest) -> str | None:
    spec = pod["spec"]
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    whole = any(
        str(((container.get("resources") or {}).get("limits") or {}).get("nvidia.com/gpu", "0")) != "0"
        for container in containers
    )
    if (pod["metadata"].get("labels") or {}).get(ENABLED_LABEL) == "true":
        return FRONTEND_ALLOWED if whole else None
    fraction = any(
        name in (pod["metadata"].get("annotations") or {})
        for name in ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices")
    )
    return GPU_PRESENT if whole or fraction else None
