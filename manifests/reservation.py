"""What is added to KAI's reservation pods on Tegra nodes.

KAI's Config carries a runtime class and security contexts for these pods, cluster-wide, but neither environment nor
volumes (KAI v0.17.0, pkg/apis/kai/v1/binder/binder.go); a privileged pod on a multi-GPU x86 node sees every GPU and
refuses to work. So everything is added at admission, per node.
"""

from config.platform import TegraPlatform
from config.reservation import Carrier
from config.stack import StackSettings
from manifests.admission_objects import POD_CREATION, apply_configuration, mutating_binding, mutating_policy
from manifests.cel import constructor
from manifests.mutations import Fragment, Mutation, Pods
from manifests.node_labels import PLATFORM, PLATFORM_TEGRA
from manifests.objects import Manifest, StackObject, namespace

NAMESPACE = "kai-resource-reservation"
APP_LABEL = "kai-resource-reservation"
SERVICE_ACCOUNT = "kai-resource-reservation"
CONTAINER = "resource-reservation"
"""The pod's only container (KAI v0.17.0, pkg/binder/binding/resourcereservation)."""
RUNTIME_CLASS = "nvidia"
"""Created by the GPU Operator's ClusterPolicy."""
SECURITY_CONTEXT = {"privileged": True, "allowPrivilegeEscalation": True, "runAsNonRoot": False, "runAsUser": 0}
"""What the container gets on Tegra: every field that KAI sets since v0.15. `privileged: true` alone is rejected beside
its `allowPrivilegeEscalation: false`, and its uid 10000 can't open the device files."""
OVERRIDES = "kai-anywhere-reservation-overrides"
IN_NAMESPACE = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
"""Selects the reservation pods' namespace, by a label that the API server sets itself."""


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The namespace, and the overrides where a policy carries them."""
    found = {"namespace": StackObject(reservation_namespace(settings))}
    if platform := settings.overridden_platform:
        match settings.reservation.carrier:
            case Carrier.POLICY:
                found["policy"] = StackObject(overrides_policy(platform))
                found["binding"] = StackObject(overrides_binding(), ("policy",))
            case Carrier.WEBHOOK:
                pass  # the admission server's
    return found


def tegra_fragment(platform: TegraPlatform) -> Fragment:
    """Everything that a reservation pod on Tegra has beyond what KAI gives it; carriers render it.

    Symptom without it: the pod dies with `ERROR_LIBRARY_NOT_FOUND`, then `Driver Not Loaded`, since the container
    toolkit mounts neither libraries nor devices. Seen on Jetson Thor with k3s; KAI up to v0.17.0; no upstream change.
    """
    libraries, devices = ("nvidia-libs", platform.driver_library_path), ("dev-nvidia", platform.device_path)
    return Fragment(
        # CEL's merge key: without it the pod's container would stay as it was, without an error.
        container=CONTAINER,
        container_missing=(
            f"a reservation pod on the Tegra node {{node}} needs a container named {CONTAINER!r}, as KAI makes it; "
            f"this one has: {{containers}}. Another program's pod does not belong into the namespace {NAMESPACE} with "
            "these labels."
        ),
        runtime_class_name=RUNTIME_CLASS,
        env=[
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
            {"name": "LD_LIBRARY_PATH", "value": platform.driver_library_path},
        ],
        volumes=[
            {"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in (libraries, devices)
        ],
        volume_mounts=[
            {"name": libraries[0], "mountPath": libraries[1], "readOnly": True},
            {"name": devices[0], "mountPath": devices[1]},
        ],
        security_context=dict(SECURITY_CONTEXT),
    )


def reservation_namespace(settings: StackSettings) -> Manifest:
    """The namespace of the reservation pods.

    Ours, since KAI's chart labels it only when it creates it: Pod Security judges the pod after our overrides, so a
    Tegra stack needs `privileged`; everywhere else KAI's own pod fits `baseline`.
    """
    return namespace(NAMESPACE, pod_security="privileged" if settings.overrides_apply else "baseline")


def overrides_policy(platform: TegraPlatform) -> Manifest:
    """The carrier `policy`: a MutatingAdmissionPolicy (Kubernetes 1.36) that adds the fragment.

    ApplyConfiguration merges containers, env and volumes by name and volumeMounts by path, so a second round changes
    nothing. A reservation pod without libraries only crash-loops: refusing it says why.
    """
    constraints = {
        "namespaceSelector": IN_NAMESPACE,
        "objectSelector": {"matchLabels": {"app": APP_LABEL}},
        "resourceRules": [POD_CREATION],
    }
    # KAI sets nodeName itself; CEL can't look a node up, so the node comes as the parameter.
    here = "has(object.spec.nodeName) && object.spec.nodeName == params.metadata.name"
    return mutating_policy(
        OVERRIDES,
        constraints,
        [apply_configuration(_apply_configuration(tegra_fragment(platform)))],
        conditions={"the-pod-goes-to-this-node": here},
        parameter="Node",
    )


def mutation(platform: TegraPlatform) -> Mutation:
    """The mutation for the carrier `webhook`.

    Namespace and labels are in it, so that the server gives no privilege outside of them, whatever its webhook selects.
    """
    pods = Pods(namespace=NAMESPACE, labels={"app": APP_LABEL}, node_labels={PLATFORM: PLATFORM_TEGRA})
    return Mutation(pods=pods, fragments={"": tegra_fragment(platform)})


def overrides_binding() -> Manifest:
    """Binds the policy to the nodes with our platform label; no such node means no mutation."""
    nodes = {"matchLabels": {PLATFORM: PLATFORM_TEGRA}}
    return mutating_binding(OVERRIDES, {"selector": nodes, "parameterNotFoundAction": "Allow"})


def _apply_configuration(given: Fragment) -> str:
    container = {
        "name": given.container,
        "env": given.env,
        "volumeMounts": given.volume_mounts,
        "securityContext": given.security_context,
    }
    spec = {"runtimeClassName": given.runtime_class_name, "volumes": given.volumes, "containers": [container]}
    return constructor({"spec": spec})
