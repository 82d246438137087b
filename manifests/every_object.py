"""Everything that a stack registers in the cluster, by its logical name: looked up before the first one is registered.

Node labels are not in it; they belong to nodes, which are there already (manifests/node_labels.py).
"""

from config.stack import StackSettings
from manifests import admission, gpu_operator, kai, pod_guard, reservation, reservation_guard, reservation_index
from manifests.gvirtus import objects as gvirtus
from manifests.monitoring import objects as monitoring
from manifests.objects import HelmRelease, Manifest, StackObject, logical_name, manifests

_MODULES = (
    ("gpu-operator", gpu_operator.objects),
    ("reservation", reservation.objects),
    ("reservation", reservation_guard.objects),
    ("reservation", reservation_index.objects),
    ("admission", admission.objects),
    ("kai-scheduler", kai.objects),
    ("gvirtus", gvirtus.objects),
    ("monitoring", monitoring.objects),
    ("pod-guard", pod_guard.objects),
)


def objects(settings: StackSettings) -> dict[str, Manifest]:
    """Every Kubernetes object that a stack registers itself."""
    return manifests(in_order(settings))


def releases(settings: StackSettings) -> dict[str, HelmRelease]:
    """Every Helm release of a stack."""
    return {
        name: stack_object.content
        for name, stack_object in in_order(settings).items()
        if isinstance(stack_object.content, HelmRelease)
    }


def in_order(settings: StackSettings) -> dict[str, StackObject]:
    """Every object and release of a stack by its logical name, each after what it depends on; hosts alone have none."""
    if settings.hosts_alone:
        return {}
    return {
        logical_name(component, name): stack_object
        for component, objects_of in _MODULES
        for name, stack_object in objects_of(settings).items()
    }
