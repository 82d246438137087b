"""What is added to KAI's reservation pods on Tegra nodes.

KAI's Config carries a runtime class and security contexts for these pods, cluster-wide, but neither environment nor
volumes (KAI v0.17.0, pkg/apis/kai/v1/binder/binder.go); a privileged pod on a multi-GPU x86 node sees every GPU and
refuses to work. So everything is added at admission, per node.
"""

from dataclasses import dataclass

from config.platform import TegraPlatform
from config.reservation import Carrier
from config.stack import StackSettings
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

_ADMISSION = "admissionregistration.k8s.io/v1"


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The namespace, and the overrides where a policy carries them."""
    found = {"namespace": StackObject(reservation_namespace(settings))}
    if isinstance(settings.platform, TegraPlatform) and settings.overrides_apply:
        match settings.reservation.carrier:
            case Carrier.POLICY:
                found["policy"] = StackObject(overrides_policy(tegra_fragment(settings.platform)))
                found["binding"] = StackObject(overrides_binding(), ("policy",))
            case Carrier.WEBHOOK:
                pass  # the admission server's
    return found


@dataclass(frozen=True)
class HostDirectory:
    """A folder of the node, mounted at the same path.

    Attributes:
        name: the volume's name.
        path: the folder, on the node and in the pod.
        read_only: whether the mount is read-only.
    """

    name: str
    path: str
    read_only: bool


@dataclass(frozen=True)
class PodFragment:
    """Everything that a reservation pod on Tegra has beyond what KAI gives it; carriers render it.

    Attributes:
        runtime_class: the pod's RuntimeClass.
        environment: name and value, in the order of the pod.
        directories: host folders.
    """

    runtime_class: str
    environment: tuple[tuple[str, str], ...]
    directories: tuple[HostDirectory, ...]


def tegra_fragment(platform: TegraPlatform) -> PodFragment:
    """The fragment for a Tegra stack.

    Symptom without it: the pod dies with `ERROR_LIBRARY_NOT_FOUND`, then `Driver Not Loaded`, since the container
    toolkit mounts neither libraries nor devices. Seen on Jetson Thor with k3s; KAI up to v0.17.0; no upstream change.
    """
    return PodFragment(
        runtime_class=RUNTIME_CLASS,
        environment=(
            ("NVIDIA_DRIVER_CAPABILITIES", "utility"),
            ("LD_LIBRARY_PATH", platform.driver_library_path),
        ),
        directories=(
            HostDirectory("nvidia-libs", platform.driver_library_path, read_only=True),
            HostDirectory("dev-nvidia", platform.device_path, read_only=False),
        ),
    )


def reservation_namespace(settings: StackSettings) -> Manifest:
    """The namespace of the reservation pods.

    Ours, since KAI's chart labels it only when it creates it: Pod Security judges the pod after our overrides, so a
    Tegra stack needs `privileged`; everywhere else KAI's own pod fits `baseline`.
    """
    return namespace(NAMESPACE, pod_security="privileged" if settings.overrides_apply else "baseline")


def overrides_policy(fragment: PodFragment) -> Manifest:
    """The carrier `policy`: a MutatingAdmissionPolicy (Kubernetes 1.36) that adds the fragment.

    ApplyConfiguration merges containers, env and volumes by name and volumeMounts by path, so a second round changes
    nothing.
    """
    return {
        "apiVersion": _ADMISSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": OVERRIDES},
        "spec": {
            # A reservation pod without libraries only crash-loops: refusing it says why.
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "paramKind": {"apiVersion": "v1", "kind": "Node"},
            "matchConstraints": {
                "namespaceSelector": IN_NAMESPACE,
                "objectSelector": {"matchLabels": {"app": APP_LABEL}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
            },
            "matchConditions": [
                {
                    # KAI sets nodeName itself; CEL can't look a node up, so the node comes as the parameter.
                    "name": "the-pod-goes-to-this-node",
                    "expression": "has(object.spec.nodeName) && object.spec.nodeName == params.metadata.name",
                }
            ],
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": _apply_configuration(fragment)},
                }
            ],
        },
    }


def mutation(fragment: PodFragment) -> Mutation:
    """The mutation, which both carriers render.

    Namespace and labels are in it, so that the server gives no privilege outside of them, whatever its webhook selects.
    """
    # The container's name is CEL's merge key: without it the pod's container would stay as it was, without an error.
    given = Fragment(
        container=CONTAINER,
        container_missing=(
            f"a reservation pod on the Tegra node {{node}} needs a container named {CONTAINER!r}, as KAI makes it; "
            f"this one has: {{containers}}. Another program's pod does not belong into the namespace {NAMESPACE} with "
            "these labels."
        ),
        runtime_class_name=fragment.runtime_class,
        env=[{"name": name, "value": value} for name, value in fragment.environment],
        volumes=[
            {"name": directory.name, "hostPath": {"path": directory.path, "type": "Directory"}}
            for directory in fragment.directories
        ],
        volume_mounts=[
            {"name": directory.name, "mountPath": directory.path} | ({"readOnly": True} if directory.read_only else {})
            for directory in fragment.directories
        ],
        security_context=dict(SECURITY_CONTEXT),
    )
    pods = Pods(namespace=NAMESPACE, labels={"app": APP_LABEL}, node_labels={PLATFORM: PLATFORM_TEGRA})
    return Mutation(pods=pods, fragments={"": given})


def overrides_binding() -> Manifest:
    """Binds the policy to the nodes with our platform label; no such node means no mutation."""
    return {
        "apiVersion": _ADMISSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": OVERRIDES},
        "spec": {
            "policyName": OVERRIDES,
            "paramRef": {
                "selector": {"matchLabels": {PLATFORM: PLATFORM_TEGRA}},
                "parameterNotFoundAction": "Allow",
            },
        },
    }


def _apply_configuration(fragment: PodFragment) -> str:
    [given] = mutation(fragment).fragments.values()
    container = {
        "name": given.container,
        "env": given.env,
        "volumeMounts": given.volume_mounts,
        "securityContext": given.security_context,
    }
    spec = {"runtimeClassName": given.runtime_class_name, "volumes": given.volumes, "containers": [container]}
    return constructor({"spec": spec})
