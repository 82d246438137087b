"""The GPU Operator's release and the objects beside it."""

import hashlib
from typing import Any

import yaml

from config.cluster import ClusterSettings, Distribution
from config.gpu_operator import RUNTIME_MODE_VARIABLE
from config.platform import RuntimeMode, TegraPlatform, X86Platform
from config.sharing import DEFAULT_PROFILE, KaiProfile, TimeSlicingProfile
from config.stack import StackSettings
from manifests.node_labels import NVIDIA_PCI_DEVICE
from manifests.objects import HelmRelease, Manifest, StackObject, namespace, resolve_chart
from manifests.reservation import RUNTIME_CLASS
from manifests.tolerations import CONTROL_PLANE, operand_tolerations, tolerations
from manifests.versions import GPU_OPERATOR

RELEASE = "gpu-operator"
DEVICE_PLUGIN = "nvidia-device-plugin-daemonset"
"""The DaemonSet that the operator makes of it (v26.7 assets/state-device-plugin)."""
DCGM_EXPORTER_PORT = 9400
OPERATOR_METRICS_PORT = 8080

_REGISTRY_PATHS = ("operator", "validator", "toolkit", "devicePlugin", "gfd", "dcgmExporter", "migManager")
"""Components whose images are pulled with the driver off; each has its own repository and policy."""
LABELS = "labels"
"""What the release waits for: the nodes' labels.

The namespace does not wait: pulumi deletes in the steps in which it makes, one step after the other, and each that
deletes a namespace takes 5 s, since Kubernetes waits so long before it empties one (v1.36
pkg/controller/namespace/namespace_controller.go, namespaceDeletionGracePeriod). So all namespaces go in one step.
"""


def objects(settings: StackSettings) -> dict[str, StackObject]:
    """The operator and what steers it; nothing where somebody else installs it."""
    if not settings.gpu_operator.install:
        return {}
    stack_objects = {"namespace": StackObject(operator_namespace(settings))}
    if profiles := time_slicing_config(settings):
        stack_objects["profiles"] = StackObject(profiles, ("namespace",), versioned=True)
    if endpoints := service_discovery(settings):
        stack_objects["endpoints"] = StackObject(endpoints, ("namespace",))
    stack_objects["release"] = StackObject(
        release(settings), (*(name for name in stack_objects if name != "endpoints"), LABELS)
    )
    if rule := tegra_feature_rule(settings):
        # Its kind comes with the release.
        stack_objects["tegra"] = StackObject(rule, ("release",))
    return stack_objects


def operator_namespace(settings: StackSettings) -> Manifest:
    """The operator's namespace; its operands are privileged by NVIDIA's design."""
    return namespace(settings.gpu_operator.namespace, pod_security="privileged")


def release(settings: StackSettings) -> HelmRelease:
    """The GPU Operator's Helm release."""
    operator = settings.gpu_operator
    values: dict[str, Any] = {
        # The host's: JetPack, DGX OS and distributions bring the driver.
        "driver": {"enabled": False},
        "operator": {"runtimeClass": RUNTIME_CLASS},
        "toolkit": {"enabled": True},
        "cdi": {"enabled": operator.cdi},
        "mig": {"strategy": operator.mig_strategy.value},
        "nfd": {"enabled": True},
        "gfd": {"enabled": True},
        "dcgmExporter": {
            "enabled": operator.dcgm_exporter.enabled,
            # On by default since v26.7, and then needs the Prometheus operator's CRDs.
            "serviceMonitor": {"enabled": operator.dcgm_exporter.service_monitor},
        },
        "devicePlugin": {
            "enabled": True,
            "env": [{"name": "DEVICE_ID_STRATEGY", "value": _device_id_strategy(settings)}],
        },
    }
    if operator.dcgm_exporter.service_monitor and (labels := settings.monitoring.service_monitor_labels):
        values["dcgmExporter"]["serviceMonitor"]["additionalLabels"] = dict(labels)
    if environment := toolkit_environment(settings):
        values["toolkit"]["env"] = [{"name": name, "value": value} for name, value in environment.items()]
    if config_map := time_slicing_config(settings):
        values["devicePlugin"]["config"] = {"name": config_map["metadata"]["name"], "default": DEFAULT_PROFILE}
    for component in _REGISTRY_PATHS:
        images = values.setdefault(component, {})
        images["imagePullPolicy"] = operator.images.pull_policy.value
        if operator.images.registry is not None:
            images["repository"] = operator.images.registry
        if operator.images.pull_secrets:
            images["imagePullSecrets"] = list(operator.images.pull_secrets)
    if stack_tolerations := tolerations(settings.cluster):
        # Helm replaces a list of the chart, so the chart's own entries are said again (v26.7 values.yaml).
        values["daemonsets"] = {"tolerations": operand_tolerations(settings.cluster)}
        values["operator"]["tolerations"] = [CONTROL_PLANE, *stack_tolerations]
    if discovery := _node_feature_discovery(settings):
        values["node-feature-discovery"] = discovery
    return HelmRelease(
        name=RELEASE,
        namespace=operator.namespace,
        source=resolve_chart(operator.chart, GPU_OPERATOR),
        values=values,
        timeout_seconds=operator.timeout_seconds,
    )


def _node_feature_discovery(settings: StackSettings) -> dict[str, Any]:
    """Values of the subchart: it has its own ways of naming images."""
    images, values = settings.gpu_operator.images, dict[str, Any]()
    if images.registry is not None:
        values["image"] = {
            "repository": f"{images.registry}/node-feature-discovery",
            "pullPolicy": images.pull_policy.value,
        }
        if images.pull_secrets:
            values["imagePullSecrets"] = [{"name": secret} for secret in images.pull_secrets]
    if stack_tolerations := tolerations(settings.cluster):
        values["worker"] = {"tolerations": [CONTROL_PLANE, *operand_tolerations(settings.cluster)]}
        values["master"] = {"tolerations": [CONTROL_PLANE, *stack_tolerations]}
        values["gc"] = {"tolerations": stack_tolerations}
    return values


def _device_id_strategy(settings: StackSettings) -> str:
    chosen = settings.gpu_operator.device_id_strategy
    if chosen is not None:
        return chosen.value
    match settings.platform:
        case TegraPlatform():
            # By UUID, the plugin finds no name for the one device of a Tegra CDI spec and advertises nothing:
            # `no names defined` (NVIDIA Container Toolkit v1.20, nvcdi csv mode; k8s-device-plugin #1963, open).
            return "index"
        case X86Platform():
            return "uuid"


def toolkit_environment(settings: StackSettings) -> dict[str, str]:
    """The container toolkit's environment on nodes where the operator installs it, sorted by name.

    The runtime mode goes here, since the operator-installed runtime reads its own configuration file, never
    /etc/nvidia-container-runtime/config.toml.

    `auto` is said where KAI writes bare UUIDs. Symptom without it: a pod with a fraction is not created, `unresolvable
    CDI devices management.nvidia.com/gpu=GPU-...`, since the operator pins the mode `cdi`, which takes a bare UUID for
    a name of that kind. `auto` resolves it, and still takes CDI names. Read in the sources of GPU Operator v26.7.0 and
    NVIDIA Container Toolkit v1.20.0, not seen on hardware; nvidia-container-toolkit #1239 has the symptom.
    """
    environment = _containerd(settings.cluster)
    mode = settings.platform.operator_runtime_mode
    if mode is not RuntimeMode.AUTO or settings.kai.writes_bare_uuids:
        environment[RUNTIME_MODE_VARIABLE] = mode.value
    return dict(sorted((environment | settings.gpu_operator.toolkit_env).items()))


def _containerd(cluster: ClusterSettings) -> dict[str, str]:
    """Where containerd's files lie; the operator's defaults are kubeadm's."""
    match cluster.distribution:
        case Distribution.KUBEADM:
            return {}
        case Distribution.K3S:
            # k3s writes this file anew at every start and finds the installed runtime by itself (gpu-operator #415).
            return {
                "CONTAINERD_CONFIG": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
                "CONTAINERD_SOCKET": "/run/k3s/containerd/containerd.sock",
            }
        case Distribution.RKE2:
            # https://docs.rke2.io/add-ons/gpu_operators: the socket only.
            return {"CONTAINERD_SOCKET": "/run/k3s/containerd/containerd.sock"}
        case Distribution.MICROK8S:
            # NVIDIA's own MicroK8s recipe: containerd.toml is rendered from the template at every start.
            arguments = "/var/snap/microk8s/current/args"
            return {
                "CONTAINERD_CONFIG": f"{arguments}/containerd-template.toml",
                "CONTAINERD_SOCKET": "/var/snap/microk8s/common/run/containerd.sock",
                "RUNTIME_CONFIG_SOURCE": f"file={arguments}/containerd.toml",
            }
        case Distribution.K8S_SNAP:
            base = cluster.containerd_base_dir or ""
            return {
                "CONTAINERD_CONFIG": f"{base}/etc/containerd/config.toml",
                "CONTAINERD_SOCKET": f"{base}/run/containerd/containerd.sock",
                "RUNTIME_DROP_IN_CONFIG": f"{base}/etc/containerd/conf.d/99-nvidia.toml",
            }


def time_slicing_config(settings: StackSettings) -> Manifest | None:
    """The device plugin's profiles, or None where no profile is asked for.

    The operator does not watch this ConfigMap's content: a hash of it in the name makes ClusterPolicy change.
    """
    if not settings.node_profiles:
        return None
    data = {DEFAULT_PROFILE: _plugin_config(None)}
    for name, profile in sorted(settings.node_profiles.items()):
        match profile:
            case KaiProfile():
                data[name] = _plugin_config(None)
            case TimeSlicingProfile():
                data[name] = _plugin_config(profile)
    digest = hashlib.sha256(yaml.safe_dump(data).encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"device-plugin-profiles-{digest}", "namespace": settings.gpu_operator.namespace},
        "data": data,
    }


def _plugin_config(profile: TimeSlicingProfile | None) -> str:
    config: dict[str, Any] = {"version": "v1"}
    if profile is not None:
        config["sharing"] = {
            "timeSlicing": {
                "renameByDefault": False,
                "failRequestsGreaterThanOne": profile.fail_requests_greater_than_one,
                "resources": [{"name": "nvidia.com/gpu", "replicas": profile.replicas}],
            }
        }
    text: str = yaml.safe_dump(config, sort_keys=False)
    return text


def tegra_feature_rule(settings: StackSettings) -> Manifest | None:
    """A NodeFeatureRule that keeps `nvidia.com/gpu.present` on Tegra nodes, or None on an x86 stack.

    Symptom without it: no operand runs on a Jetson, and a `gpu.present` set by hand is reset to false. The operator
    derives it from NFD's PCI labels alone, and an integrated GPU is no PCI display device (GPU Operator v26.7.0,
    controllers/nodelabeling_controller.go; Jetson is out of its scope, issues #47 and #1453).
    """
    match settings.platform:
        case X86Platform():
            return None
        case TegraPlatform(tegra_nodes=nodes):
            return {
                "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
                "kind": "NodeFeatureRule",
                "metadata": {"name": "kai-anywhere-tegra"},
                "spec": {
                    "rules": [
                        {
                            "name": "integrated NVIDIA GPU",
                            "labels": {NVIDIA_PCI_DEVICE: "true"},
                            "matchFeatures": [
                                {
                                    "feature": "system.name",
                                    "matchExpressions": {"nodename": {"op": "In", "value": sorted(nodes)}},
                                }
                            ],
                        }
                    ]
                },
            }


def service_discovery(settings: StackSettings) -> Manifest | None:
    """A ConfigMap that names the metrics endpoints, or None where a stack turns it off."""
    operator = settings.gpu_operator
    if not operator.service_discovery:
        return None
    domain = f"{operator.namespace}.svc.cluster.local"
    data = {"gpu-operator-metrics": f"http://gpu-operator.{domain}:{OPERATOR_METRICS_PORT}/metrics"}
    if operator.dcgm_exporter.enabled:
        data["dcgm-exporter-metrics"] = f"http://nvidia-dcgm-exporter.{domain}:{DCGM_EXPORTER_PORT}/metrics"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "gpu-operator-endpoints",
            "namespace": operator.namespace,
            "labels": {"kai-anywhere.io/service-discovery": "true"},
        },
        "data": data,
    }
