"""Everything that remote GPUs are made of, and in which order."""

from collections.abc import Mapping

from config.admission import Webhook
from config.gvirtus import BackendKind, GvirtusSettings
from config.stack import StackSettings
from manifests import admission
from manifests.admission_objects import deny_binding, mutating_binding
from manifests.gvirtus import backends, frontends, policy
from manifests.objects import StackObject

GPUS, SERVER, ADMITTED = "gpus", "server", "admitted"
"""What the component waits for: GPUs, the runtime class and NFD's kinds; the admission server, where it is the carrier;
that a guard of the whole cluster lets the device plugin in, of which it learns in the same run."""
SERVICE, BACKEND = "service-", "backend-"
"""What the names of backends' Services and Deployments begin with."""
ADDRESSES = "webhook-backends"
"""The ConfigMap whose data hold the backends' addresses, which only the cluster knows (`addresses_data`)."""
_ANY_ADDRESS = "192.0.2.1"
"""Stands for each address until the component puts the real ones in its place (RFC 5737)."""


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """Backends first: the carrier needs their addresses, and a pod that is let in too early would find nobody."""
    gvirtus = settings.gvirtus
    if gvirtus is None:
        return {}
    listed: dict[str, StackObject] = {}
    if settings.gpu_operator.install:
        # Detected by NFD, which the operator brings; without it, frontends are the nodes that the stack names.
        listed["roles"] = StackObject(frontends.roles_rule(gvirtus), (GPUS,))
    listed["namespace"] = StackObject(backends.backends_namespace(gvirtus))
    listed["clients"] = StackObject(backends.network_policy(gvirtus), ("namespace",))
    for name in sorted(gvirtus.backends):
        listed[f"{SERVICE}{name}"] = StackObject(backends.service(gvirtus, name), ("namespace",))
        # Behind the fence before anybody can reach it.
        listed[f"{BACKEND}{name}"] = StackObject(backends.deployment(settings, gvirtus, name), ("clients", GPUS))
    return listed | _carrier(settings, gvirtus) | _frontends(settings, gvirtus)


def addresses_data(gvirtus: GvirtusSettings, addresses: Mapping[str, str]) -> dict[str, str]:
    """The data of the ConfigMap `ADDRESSES`.

    Args:
        gvirtus: the settings.
        addresses: the address of each backend's Service, by name.
    """
    return admission.gvirtus_backends_data(backends.endpoints(gvirtus, addresses))


def _carrier(settings: StackSettings, gvirtus: GvirtusSettings) -> dict[str, StackObject]:
    """Refusals are in force before anything is added to pods, whoever adds it."""
    requests = policy.requests_policy(settings, gvirtus)
    binding = StackObject(deny_binding(policy.REQUESTS), ("requests",))
    if Webhook.GVIRTUS in settings.webhooks:
        # The server runs since before KAI, and refuses these pods until the kubelet has shown it this ConfigMap.
        data = addresses_data(gvirtus, dict.fromkeys(gvirtus.backends, _ANY_ADDRESS))
        backends_of_webhook = StackObject(
            admission.gvirtus_backends(settings) | {"data": data}, ("requests-binding", SERVER)
        )
        return {"requests": StackObject(requests), "requests-binding": binding, ADDRESSES: backends_of_webhook}
    services = tuple(f"{SERVICE}{name}" for name in sorted(gvirtus.backends))
    listed = {"requests": StackObject(requests, services), "requests-binding": binding}
    for kind in BackendKind:
        if any(backend.kind is kind for backend in gvirtus.backends.values()):
            name = f"{kind.value}-injection"
            listed[name] = StackObject(policy.injection_policy(settings, gvirtus, kind), ("requests-binding",))
            listed[f"{name}-binding"] = StackObject(policy.injection_binding(settings, gvirtus, kind), (name,))
    return listed


def _frontends(settings: StackSettings, gvirtus: GvirtusSettings) -> dict[str, StackObject]:
    """Pods are kept away before the first device is there: by the guard, and by selectors that a policy adds.

    The webhook adds none, so that pods without the label don't depend on its server: they say it themselves.
    """
    if gvirtus.frontends is None:
        return {}
    placement: dict[str, StackObject] = {}
    if Webhook.GVIRTUS not in settings.webhooks:
        placement["placement"] = StackObject(frontends.placement_policy(settings))
        binding = mutating_binding(settings, frontends.PLACEMENT)
        placement["placement-binding"] = StackObject(binding, ("placement",))
    return placement | {
        "guard": StackObject(frontends.guard_policy(settings, gvirtus.frontends), tuple(placement)[1:]),
        "guard-binding": StackObject(deny_binding(frontends.GUARD), ("guard",)),
        "frontends-namespace": StackObject(frontends.frontends_namespace()),
        "device-plugin": StackObject(
            frontends.device_plugin(settings, gvirtus.frontends), ("frontends-namespace", "guard-binding", ADMITTED)
        ),
    }
