"""Nodes without a GPU that advertise `nvidia.com/gpu`, and what keeps ordinary CUDA pods away from them.

GVirtuS needs nothing on such a node. The device lets pods with remote GPUs keep their requests, so that they are
scheduled, counted in KAI's queues and bounded per node; it stands for `/dev/null`.
"""

import json
from typing import Any

from config.cluster import Distribution
from config.gvirtus import FRONTEND_ALLOWED, FRONTENDS_NAMESPACE, FrontendSettings, GvirtusSettings
from config.kai import GpuSharingMode
from config.stack import StackSettings
from manifests.admission_objects import (
    HAS_CONTAINERS,
    POD_CREATION,
    Validation,
    json_patch,
    mutating_policy,
    outside_of,
    validating_policy,
)
from manifests.cel import literal
from manifests.gvirtus.backends import BACKEND_ALLOWED
from manifests.gvirtus.injection import ENABLED_LABEL
from manifests.gvirtus.policy import namespaces_left_alone
from manifests.node_labels import GPU_PRESENT, NVIDIA_PCI_DEVICE, PLATFORM, PLATFORM_TEGRA
from manifests.objects import Manifest, namespace, unprivileged
from manifests.versions import DEVICE_PLUGIN_IMAGE
from manifests.wording import first_of
from pod_checks import table

DEVICE_PLUGIN = "gvirtus-device-plugin"
ROLES = "kai-anywhere-gvirtus-roles"
PLACEMENT = "kai-anywhere-gvirtus-placement"
GUARD = "kai-anywhere-gvirtus-frontends"

_RESOURCE = "nvidia.com/gpu"
_FRACTIONS = ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"]
"""KAI's own requests (v0.17.0): on a frontend its reservation pod would find no GPU."""


def roles_rule(gvirtus: GvirtusSettings) -> Manifest:
    """A NodeFeatureRule that finds GPUs and labels nodes by it; NFD judges again every minute, and takes labels back.

    A GPU is an NVIDIA display device on PCI (class 03), or a Tegra kernel, since a Jetson's GPU is not on PCI.
    """
    pci = {"vendor": {"op": "In", "value": ["10de"]}, "class": {"op": "In", "value": ["0300", "0302"]}}
    tegra = {"full": {"op": "InRegexp", "value": ["-tegra$"]}}
    rules: list[dict[str, Any]] = [
        {
            "name": "gvirtus backend",
            "labels": {BACKEND_ALLOWED: "true"},
            "vars": {"gvirtus.gpu": "true"},
            "matchAny": [
                {"matchFeatures": [{"feature": "pci.device", "matchExpressions": pci}]},
                {"matchFeatures": [{"feature": "kernel.version", "matchExpressions": tegra}]},
            ],
        }
    ]
    if gvirtus.frontends is not None:
        node_names = {"nodename": {"op": "In", "value": sorted(gvirtus.frontends.nodes)}}
        rules.append(
            {
                "name": "gvirtus frontend",
                "labels": {FRONTEND_ALLOWED: "true"},
                "matchFeatures": [
                    {"feature": "system.name", "matchExpressions": node_names},
                    # What the rule before this one found.
                    {"feature": "rule.matched", "matchExpressions": {"gvirtus.gpu": {"op": "DoesNotExist"}}},
                ],
            }
        )
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": ROLES},
        "spec": {"rules": rules},
    }


def frontends_namespace() -> Manifest:
    """The device plugin's namespace. `privileged`: the kubelet's folder of sockets is a folder of the node."""
    return namespace(FRONTENDS_NAMESPACE, pod_security="privileged")


def device_plugin(settings: StackSettings, frontends: FrontendSettings) -> Manifest:
    """squat/generic-device-plugin with a configuration and nothing else.

    Root, since the kubelet's folder belongs to it, but without privilege or capabilities: `/dev/null` is in every
    container, so that the node's devices need not be. A node that gets a GPU loses the plugin: two for one resource
    would take turns in registering.
    """
    labels = {"app.kubernetes.io/name": DEVICE_PLUGIN, "app.kubernetes.io/part-of": "kai-anywhere"}
    path = {"path": "/dev/null", "mountPath": "/dev/gvirtus0", "permissions": "rw"}
    device = {"name": "gpu", "groups": [{"count": frontends.gpus_per_node, "paths": [path]}]}
    sockets = f"{_kubelet_folder(settings.cluster.distribution)}/device-plugins"
    node = [
        {"key": FRONTEND_ALLOWED, "operator": "In", "values": ["true"]},
        {"key": GPU_PRESENT, "operator": "NotIn", "values": ["true"]},
        {"key": NVIDIA_PCI_DEVICE, "operator": "NotIn", "values": ["true"]},
        {"key": PLATFORM, "operator": "NotIn", "values": [PLATFORM_TEGRA]},
    ]
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": node}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DEVICE_PLUGIN, "namespace": FRONTENDS_NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": DEVICE_PLUGIN}},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "automountServiceAccountToken": False,
                    "affinity": {"nodeAffinity": affinity},
                    "tolerations": [{"operator": "Exists"}],
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "volumes": [{"name": "device-plugins", "hostPath": {"path": sockets, "type": "Directory"}}],
                    "containers": [
                        {
                            "name": "device-plugin",
                            "image": frontends.device_plugin_image or DEVICE_PLUGIN_IMAGE,
                            "args": [
                                "--domain",
                                _RESOURCE.partition("/")[0],
                                "--device",
                                json.dumps(device, separators=(",", ":")),
                            ],
                            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                            "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10},
                            "livenessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 20},
                            "resources": {
                                "requests": {"cpu": "10m", "memory": "16Mi"},
                                "limits": {"cpu": "100m", "memory": "64Mi"},
                            },
                            "volumeMounts": [
                                {"name": "device-plugins", "mountPath": "/var/lib/kubelet/device-plugins"}
                            ],
                            "securityContext": unprivileged(),
                        }
                    ],
                },
            },
        },
    }


def placement_policy(settings: StackSettings) -> Manifest:
    """Add a node selector for its kind of GPU to every pod of the cluster that asks for one and has no node yet.

    A selector joins whatever the pod says of nodes itself, so that no affinity needs to be read.
    """
    return mutating_policy(
        settings,
        PLACEMENT,
        _pods(settings),
        [json_patch(f"{_remote()} ? {_add_selector(FRONTEND_ALLOWED)} :\n{_add_selector(GPU_PRESENT)}")],
        conditions={
            **HAS_CONTAINERS,
            "asks-for-a-gpu": f"({_remote()}) ? ({_whole()}) : ({_whole()} || {_fraction(settings)})",
            "no-node-yet": "object.spec.?nodeName.orValue('') == ''",
        },
    )


def guard_policy(settings: StackSettings, frontends: FrontendSettings) -> Manifest:
    """A ValidatingAdmissionPolicy: a pod that wants a real GPU can't land where there is none."""
    nodes = sorted(frontends.nodes)
    real = Validation(
        "object.spec.?nodeName.orValue('') == '' ? object.spec.?nodeSelector"
        f"[?{literal(GPU_PRESENT)}].orValue('') == 'true' : !(object.spec.nodeName in {literal(nodes)})",
        f"the GPUs of these nodes stand for remote ones: {first_of(nodes)}. For a GPU of the node's own set "
        f"nodeSelector {GPU_PRESENT}: 'true'; for a remote one the label {ENABLED_LABEL}: 'true'",
        forbidden=False,
    )
    conditions = {"wants-a-real-gpu": f"!({_remote()}) && ({_whole()} || {_fraction(settings)})"}
    return validating_policy(GUARD, _pods(settings), {}, [real], conditions)


def _kubelet_folder(distribution: Distribution) -> str:
    """Where the kubelet lives; the policy pack accepts these folders and no other."""
    match distribution:
        case Distribution.MICROK8S:
            return "/var/snap/microk8s/common/var/lib/kubelet"
        case Distribution.KUBEADM | Distribution.K3S | Distribution.RKE2 | Distribution.K8S_SNAP:
            return "/var/lib/kubelet"


def _pods(settings: StackSettings) -> Manifest:
    """Pods everywhere but where somebody places them by design: operators' validators, reservations, backends."""
    return {"namespaceSelector": outside_of(namespaces_left_alone(settings)), "resourceRules": [POD_CREATION]}


def _remote() -> str:
    return f"object.metadata.?labels[?{literal(ENABLED_LABEL)}].orValue('') == 'true'"


def _whole() -> str:
    """Whether a container asks for GPUs; the API server writes none of them as `0`, however the pod says it."""
    return (
        "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,"
        f" string(c.?resources.?limits[?{literal(_RESOURCE)}].orValue('0')) != '0')"
    )


def _fraction(settings: StackSettings) -> str:
    """Whether the pod asks KAI for a part of a GPU; what NvFractions reads counts where the stack has it."""
    asks = f"key in {literal(_FRACTIONS)}"
    if settings.kai.gpu_sharing_mode is GpuSharingMode.NV_FRACTIONS:
        prefix, ends = table.CONTAINER_MEMORY
        ends_so = " || ".join(f"key.endsWith({literal(end)})" for end in ends)
        asks = f"{asks} || (key.startsWith({literal(prefix)}) && ({ends_so}))"
    return f"object.metadata.?annotations.orValue({{}}).exists(key, {asks})"


def _add_selector(label: str) -> str:
    path = f"/spec/nodeSelector/{label.replace('/', '~1')}"
    return (
        f"(object.spec.?nodeSelector[?{literal(label)}].hasValue() ? [] :"
        ' (has(object.spec.nodeSelector) ? [] : [JSONPatch{op: "add", path: "/spec/nodeSelector", value: {}}])'
        f' + [JSONPatch{{op: "add", path: {literal(path)}, value: "true"}}])'
    )
