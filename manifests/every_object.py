"""Every object of a stack in one place, to be looked up in the cluster before the first one is registered."""

from config.platform import TegraPlatform
from config.reservation import Carrier
from config.stack import StackSettings
from manifests import admission, gpu_operator, kai, pod_guard, reservation, reservation_guard
from manifests.gvirtus import backends as gvirtus
from manifests.gvirtus import frontends as gvirtus_frontends
from manifests.gvirtus import policy as gvirtus_policy
from manifests.objects import Manifest, deny_binding


def objects(settings: StackSettings, *, backend_address: str) -> dict[str, Manifest]:
    """Every Kubernetes object that a stack registers itself, by a short name; node labels and releases are not.

    Args:
        settings: the stack's settings.
        backend_address: stands for the address of each backend's Service, which only the cluster knows.
    """
    found: dict[str, Manifest | None] = {
        "reservation-namespace": reservation.reservation_namespace(settings),
        "guard-policy": reservation_guard.guard_policy(settings),
        "guard-binding": deny_binding(reservation_guard.GUARD),
        "pod-guard-policy": pod_guard.guard_policy(settings),
        "pod-guard-binding": deny_binding(pod_guard.POD_GUARD),
        "kai-namespace": kai.kai_namespace(settings),
        "kai-default-shard": kai.default_shard(),
    }
    carrier = settings.reservation.carrier if settings.overrides_apply else None
    if carrier is Carrier.POLICY and isinstance(settings.platform, TegraPlatform):
        found["overrides-policy"] = reservation.overrides_policy(reservation.tegra_fragment(settings.platform))
        found["overrides-binding"] = reservation.overrides_binding()
    if settings.gpu_operator.install:
        found["gpu-operator-namespace"] = gpu_operator.operator_namespace(settings)
        found["gpu-operator-profiles"] = gpu_operator.time_slicing_config(settings)
        found["gpu-operator-tegra"] = gpu_operator.tegra_feature_rule(settings)
        found["gpu-operator-endpoints"] = gpu_operator.service_discovery(settings)
    found |= {f"admission-{name}": manifest for name, manifest in admission.objects(settings).items()}
    for name, queue in kai.queues(settings).items():
        found[f"queue-{name}"] = queue
    found |= _gvirtus(settings, backend_address)
    return {name: manifest for name, manifest in found.items() if manifest is not None}


def _gvirtus(settings: StackSettings, backend_address: str) -> dict[str, Manifest]:
    remote = settings.gvirtus
    if remote is None:
        return {}
    addresses = dict.fromkeys(remote.backends, backend_address)
    objects = {
        "gvirtus-namespace": gvirtus.backends_namespace(remote),
        "gvirtus-clients": gvirtus.network_policy(remote),
        "gvirtus-requests": gvirtus_policy.requests_policy(settings, remote),
        "gvirtus-requests-binding": deny_binding(gvirtus_policy.REQUESTS),
    }
    for name in sorted(remote.backends):
        objects[f"gvirtus-service-{name}"] = gvirtus.service(remote, name)
        objects[f"gvirtus-backend-{name}"] = gvirtus.deployment(settings, remote, name)
    match remote.carrier:
        case Carrier.POLICY:
            endpoints = gvirtus.endpoints(remote, addresses)
            objects["gvirtus-endpoints"] = gvirtus_policy.endpoints_config(remote, endpoints)
            for kind in sorted({backend.kind for backend in remote.backends.values()}):
                objects[f"gvirtus-{kind}-injection"] = gvirtus_policy.injection_policy(settings, remote, kind)
                objects[f"gvirtus-{kind}-injection-binding"] = gvirtus_policy.injection_binding(remote, kind)
        case Carrier.WEBHOOK:
            data = admission.gvirtus_backends_data(gvirtus.endpoints(remote, addresses))
            objects["gvirtus-webhook-backends"] = admission.gvirtus_backends(settings) | {"data": data}
    if settings.gpu_operator.install:
        objects["gvirtus-roles"] = gvirtus_frontends.roles_rule(remote)
    if remote.frontends is not None:
        if remote.carrier is Carrier.POLICY:
            objects["gvirtus-placement"] = gvirtus_frontends.placement_policy(settings)
            objects["gvirtus-placement-binding"] = gvirtus_frontends.placement_binding()
        objects["gvirtus-guard"] = gvirtus_frontends.guard_policy(settings, remote.frontends)
        objects["gvirtus-guard-binding"] = deny_binding(gvirtus_frontends.GUARD)
        objects["gvirtus-frontends-namespace"] = gvirtus_frontends.frontends_namespace()
        objects["gvirtus-device-plugin"] = gvirtus_frontends.device_plugin(settings, remote.frontends)
    return objects
