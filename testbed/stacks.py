"""Compliant settings of every kind of stack; a test changes one thing of them.

A stack here is plain JSON, as it is under `kai-anywhere:settings`. Every helper returns a new one.
"""

import copy
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from config.stack import SETTINGS_KEY, StackConfigError, StackSettings, parse_settings

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parents[1]
STACK_FILES = Path(__file__).parent / "data"
"""The stack files of tests and benchmarks: those at the root are the user's, who edits them."""
FILE = "Pulumi.test.yaml"
"""The stack file's name in error messages."""


def read_stack_file(text: str) -> Json:
    """The settings that a stack file's text holds."""
    settings: Json = yaml.safe_load(text)["config"][f"kai-anywhere:{SETTINGS_KEY}"]
    return settings


@cache
def _shipped(file: str) -> Json:
    """Read once: tests ask for the same stack a thousand times, and YAML takes its time."""
    return read_stack_file((STACK_FILES / file).read_text(encoding="utf-8"))


def jetson() -> Json:
    """A Jetson stack that says everything that is not optional."""
    return copy.deepcopy(_shipped("Pulumi.jetson.yaml"))


def x86() -> Json:
    """An x86 stack that says everything that is not optional."""
    return copy.deepcopy(_shipped("Pulumi.x86.yaml"))


def never() -> Json:
    """Jetson nodes whose container toolkit injects the GPU by itself."""
    return changed(jetson(), "reservation.overrides", "never")


def unprivileged() -> Json:
    """Jetsons whose container toolkit gives libraries and devices to pods of a group."""
    stack = changed(jetson(), "reservation.privilege", "none")
    return changed(stack, "reservation.supplemental_groups", [44, 104])


def rungs() -> Json:
    """Three Jetsons whose reservation pods need the least, libraries, and privilege."""
    more = {node: {"gpu_memory_mib": 57344} for node in ("jetson-2", "jetson-3")}
    stack = changed(unprivileged(), "platform.tegra_nodes", jetson()["platform"]["tegra_nodes"] | more)
    return changed(stack, "reservation.privilege_by_node", {"jetson-2": "devices", "jetson-3": "privileged"})


def mixed() -> Json:
    """Two Jetsons, a DGX Spark, and x86 nodes with discrete GPUs, which a stack does not name."""
    stack = changed(jetson(), "platform.tegra_nodes.jetson-2", {"gpu_memory_mib": 57344, "gpu_count": 2})
    stack = changed(stack, "platform.unified_memory_nodes", {"spark-1": {"gpu_memory_mib": 114688}})
    stack = changed(stack, "platform.container_toolkit", "operator")
    return changed(stack, "kai.cdi_enabled", False)


def spark() -> Json:
    """An x86 stack with a DGX Spark."""
    return changed(x86(), "platform.unified_memory_nodes", {"spark-1": {"gpu_memory_mib": 114688}})


def hami_core() -> Json:
    """Discrete GPUs, where a library in each pod holds it to its fraction."""
    return changed(x86(), "kai.gpu_sharing_mode", "hami_core")


def time_slicing() -> Json:
    """An x86 stack with one node profile of each kind."""
    profiles = {
        "sliced": {"sharing": "time_slicing", "nodes": ["gpu-7", "gpu-8"], "replicas": 4},
        "fractions": {"sharing": "kai", "nodes": ["gpu-9"]},
    }
    return changed(x86(), "node_profiles", profiles)


def k8s_snap() -> Json:
    """An x86 stack on Canonical Kubernetes with its own containerd folder, too old for CDI."""
    return changed(
        changed(x86(), "gpu_operator.cdi", False),
        "cluster",
        {"distribution": "k8s-snap", "containerd_base_dir": "/var/lib/k8s-containerd"},
    )


def air_gapped() -> Json:
    """An x86 stack that says everything that can be said of charts, images and tolerations."""
    stack = time_slicing()
    for release in ("gpu_operator", "kai"):
        images = {
            "registry": f"registry.example.com:5000/{release}",
            "pull_policy": "Never",
            "pull_secrets": ["site", "team"],
        }
        stack = changed(stack, f"{release}.images", images)
    stack = changed(stack, "gpu_operator.chart", {"source": "./charts/gpu-operator-v26.7.2.tgz"})
    stack = changed(stack, "kai.chart", {"source": "oci://registry.example.com:5000/kai", "version": "v0.18.5"})
    stack = changed(stack, "kai.image_tag", "v0.18.6-site")
    stack = changed(stack, "kai.cdi_enabled", True)
    stack = changed(
        stack, "kai.scheduler", {"placement": "spread", "args": {"v": "4", "full-hierarchy-fairness": "true"}}
    )
    stack = changed(stack, "kai.default_queue", False)
    stack = changed(stack, "gpu_operator.mig_strategy", "mixed")
    stack = changed(stack, "gpu_operator.device_id_strategy", "index")
    stack = changed(stack, "gpu_operator.dcgm_exporter", {"enabled": True, "service_monitor": True})
    stack = changed(stack, "gpu_operator.toolkit_env", {"CONTAINERD_SET_AS_DEFAULT": "false"})
    stack = changed(stack, "cluster.tolerated_taints", ["dedicated=gpus:NoSchedule"])
    return changed(stack, "platform.container_runtime_mode", "cdi")


def webhook() -> Json:
    """Jetsons on a cluster without MutatingAdmissionPolicy: our admission server carries the overrides."""
    stack = changed(jetson(), "cluster.kubernetes_version", "1.33")
    stack = changed(stack, "reservation.carrier", "webhook")
    return changed(stack, "admission.image", "registry.example.com/kai-anywhere/agents:0.1.0")


def rungs_webhook() -> Json:
    """The three Jetsons on a cluster without MutatingAdmissionPolicy."""
    stack = changed(rungs(), "cluster.kubernetes_version", "1.33")
    stack = changed(stack, "reservation.carrier", "webhook")
    return changed(stack, "admission.image", "registry.example.com/kai-anywhere/agents:0.1.0")


def cert_manager() -> Json:
    """The same with certificates of cert-manager, and everything else said that can be said."""
    certificates = {"kind": "cert-manager", "issuer": "cluster-ca", "issuer_kind": "ClusterIssuer"}
    admission = {
        "image": "registry.example.com/kai-anywhere/agents@sha256:" + "0" * 64,
        "pull_policy": "Always",
        "pull_secrets": ["site"],
        "namespace": "gpu-admission",
        "replicas": 3,
        "certificates": certificates,
        "timeout_seconds": 3,
    }
    return changed(webhook(), "admission", admission)


def stack_certificates() -> Json:
    """The same with an authority that the stack publishes, while the next one is made known."""
    return changed(webhook(), "admission.certificates", {"kind": "stack", "authorities": ["a", "b"]})


def operator_elsewhere() -> Json:
    """A Jetson stack in a cluster where somebody else runs the GPU Operator."""
    return changed(jetson(), "gpu_operator.install", False)


def gvirtus() -> Json:
    """A Jetson stack with remote GPUs of both kinds, and a frontend."""
    backends = {
        "gpu-a": {"image": "gvirtus/gvirtus:cuda12.6.3-cudnn-ubuntu22.04", "node": "x86-1"},
        "gpu-b": {
            "kind": "lupine",
            "image": "ghcr.io/lupinemachines/lupine-server:cuda-13.3.1-ubuntu24.04",
            "node_selector": {"nvidia.com/gpu.present": "true"},
        },
    }
    section = {"backends": backends, "default_backend": "gpu-a", "frontends": {"nodes": ["cpu-1"], "gpus_per_node": 4}}
    return changed(jetson(), "gvirtus", section)


def gvirtus_full() -> Json:
    """An x86 stack that says everything that can be said of remote GPUs, without a GPU Operator of its own."""
    stack = changed(gvirtus(), "gpu_operator.install", False)
    stack = changed(stack, "platform", x86()["platform"])
    stack = changed(stack, "cluster", {"distribution": "microk8s"})
    backend = {
        "kind": "gvirtus",
        "image": "registry.example.com:5000/gvirtus@sha256:" + "0" * 64,
        "node_selector": {"example.com/gpu": "true"},
        "gpu_resource": "nvidia.com/mig-1g.5gb",
        "port": 34567,
        "run_as_user": 1000,
        "cpu": "2",
        "memory": "8Gi",
    }
    stack = changed(stack, "gvirtus.backends", {"only": backend})
    stack = changed(stack, "gvirtus.default_backend", "only")
    stack = changed(stack, "gvirtus.namespace", "remote-gpus")
    stack = changed(stack, "gvirtus.client_namespace_labels", {"example.com/team": "robots"})
    stack = changed(stack, "gvirtus.pull_secrets", ["site"])
    stack = changed(
        stack,
        "gvirtus.frontends.device_plugin_image",
        "registry.example.com:5000/generic-device-plugin@sha256:" + "1" * 64,
    )
    return changed(stack, "gvirtus.timeout_seconds", 900)


def gvirtus_webhook() -> Json:
    """The same remote GPUs on a cluster without MutatingAdmissionPolicy: our admission server carries everything."""
    stack = changed(gvirtus(), "cluster.kubernetes_version", "1.33")
    stack = changed(stack, "reservation.carrier", "webhook")
    stack = changed(stack, "gvirtus.carrier", "webhook")
    return changed(stack, "admission.image", "registry.example.com/kai-anywhere/agents:0.1.0")


def beta_policies() -> Json:
    """Remote GPUs and Jetsons on Kubernetes 1.35, where somebody switched MutatingAdmissionPolicy v1beta1 on."""
    stack = changed(without(gvirtus(), "reservation.carrier"), "cluster.kubernetes_version", "1.35")
    return changed(stack, "cluster.mutating_policies", "v1beta1")


def monitoring() -> Json:
    """A Jetson stack with metrics, for a Prometheus that scrapes by annotations."""
    image = "registry.example.com/kai-anywhere/metrics:0.1.0"
    return changed(jetson(), "monitoring", {"enabled": True, "image": image})


def monitoring_full() -> Json:
    """An x86 stack that says everything that can be said of metrics."""
    section = {
        "enabled": True,
        "image": "registry.example.com/kai-anywhere/metrics@sha256:" + "0" * 64,
        "pull_policy": "Always",
        "pull_secrets": ["site"],
        "namespace": "gpu-metrics",
        "interval_seconds": 60,
        "service_monitor": True,
        "service_monitor_labels": {"release": "kube-prometheus-stack"},
        "dashboards": {"enabled": True, "labels": {"grafana_dashboard": "yes"}},
    }
    return changed(x86(), "monitoring", section)


def of_hosts_alone(file: Path) -> None:
    """Change a copy of a stack file so that the stack installs nothing in a cluster."""
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("installs: everything", "installs: hosts"), encoding="utf-8")


STACKS: Mapping[str, Callable[[], Json]] = {
    "jetson": jetson,
    "x86": x86,
    "never": never,
    "unprivileged": unprivileged,
    "rungs": rungs,
    "mixed": mixed,
    "spark": spark,
    "hami-core": hami_core,
    "time-slicing": time_slicing,
    "k8s-snap": k8s_snap,
    "air-gapped": air_gapped,
    "operator-elsewhere": operator_elsewhere,
    "gvirtus": gvirtus,
    "gvirtus-full": gvirtus_full,
    "gvirtus-webhook": gvirtus_webhook,
    "beta-policies": beta_policies,
    "webhook": webhook,
    "rungs-webhook": rungs_webhook,
    "cert-manager": cert_manager,
    "stack-certificates": stack_certificates,
    "monitoring": monitoring,
    "monitoring-full": monitoring_full,
}
"""Every kind of stack by name."""

WEBHOOK_STACKS = frozenset({"webhook", "rungs-webhook", "cert-manager", "stack-certificates", "gvirtus-webhook"})
"""Those where the admission server runs."""


def changed(stack: Json, path: str, value: object) -> Json:
    """The stack with one value set; missing parents are made."""
    result = copy.deepcopy(stack)
    node: Any = result
    *parents, leaf = path.split(".")
    for parent in parents:
        node = node.setdefault(parent, {})
    node[leaf] = value
    return result


def without(stack: Json, path: str) -> Json:
    """The stack with one key removed."""
    result = copy.deepcopy(stack)
    node: Any = result
    *parents, leaf = path.split(".")
    for parent in parents:
        node = node[parent]
    del node[leaf]
    return result


def parse(stack: Json) -> StackSettings:
    """Validate a compliant stack."""
    return parse_settings(json.dumps(stack), file=FILE)


def refusal(stack: Json) -> str:
    """The error text of a stack that is not compliant."""
    with pytest.raises(StackConfigError) as caught:
        parse(stack)
    return str(caught.value)


_ABSENT = object()


def assert_refused(stack: Json, key: str, *says: str, found: object = _ABSENT) -> None:
    """The stack has exactly one problem.

    Args:
        stack: the stack with one thing wrong.
        key: path below the settings, empty for the settings themselves.
        says: parts of the problem's text: what is wrong, and the way out.
        found: the value that is quoted; without it, the text must quote none.
    """
    header, where, *rest = refusal(stack).splitlines()
    assert header == f"{FILE}: 1 setting is wrong. Nothing was changed."
    assert where == f"  kai-anywhere:{'.'.join(filter(None, [SETTINGS_KEY, key]))}"
    if found is _ABSENT:
        [problem] = rest
    else:
        quoted, problem = rest
        assert quoted == f"    found:   {found!r}"
    assert problem.startswith("    problem: ")
    for part in says:
        assert part in problem
