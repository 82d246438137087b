"""Compliant resources; a test changes one thing of them. Every helper returns a new one."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from policy.findings import Finding
from policy.judge import judge
from policy.rules import RULES
from policy.stack_platform import StackFacts

Json: TypeAlias = dict[str, Any]

UNKNOWN = UNKNOWN_STRING_VALUE
"""What the engine sends for a value that a preview can't know."""
STRICT = StackFacts()
TEGRA = StackFacts(tegra_nodes=frozenset({"jetson-1"}), labelled_nodes=frozenset({"jetson-1"}))
IMAGE = "registry.example.com/app:1.2.3"


def pod() -> Json:
    """A pod with everything that is allowed."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "team", "labels": {"app": "web"}, "annotations": {"note": "text"}},
        "spec": {
            "hostNetwork": False,
            "hostPID": False,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
                "sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
            },
            "volumes": [
                {"name": "cache", "emptyDir": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            ],
            "initContainers": [{"name": "prepare", "image": IMAGE, "securityContext": {"privileged": False}}],
            "containers": [
                {
                    "name": "app",
                    "image": IMAGE,
                    "ports": [{"containerPort": 8080}],
                    "env": [{"name": "MODE", "value": "fast"}],
                    "resources": {"limits": {"cpu": "1"}},
                    "livenessProbe": {"httpGet": {"path": "/", "port": 8080}},
                    "volumeMounts": [{"name": "cache", "mountPath": "/cache", "subPath": "one/two"}],
                    "securityContext": {
                        "privileged": False,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                        "procMount": "Default",
                        "seLinuxOptions": {"type": "container_t"},
                        "appArmorProfile": {"type": "RuntimeDefault"},
                    },
                }
            ],
            "ephemeralContainers": [{"name": "debug", "image": IMAGE}],
        },
    }


def reservation_pod() -> Json:
    """KAI's reservation pod on a Tegra node, with exactly what the platform grants."""
    fragment = copy.deepcopy(TEGRA.fragment("jetson-1")["spec"])
    assert isinstance(fragment, dict)
    fragment["nodeName"] = "jetson-1"
    fragment["serviceAccountName"] = "kai-resource-reservation"
    fragment["containers"][0]["image"] = "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation:v0.18.6"
    fragment["containers"][0]["resources"] = {part: {"nvidia.com/gpu": "1"} for part in ("limits", "requests")}
    metadata = {
        "name": "gpu-reservation-1",
        "namespace": "kai-resource-reservation",
        "labels": {"app": "kai-resource-reservation"},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": fragment}


def template(of: Json) -> Json:
    """A pod as a template."""
    return {"metadata": of["metadata"], "spec": of["spec"]}


def _controller(of: Json) -> Json:
    return {"metadata": {"name": "web"}, "spec": {"template": template(of)}}


def _job(of: Json) -> Json:
    return {"metadata": {"name": "web"}, "spec": {"jobTemplate": {"spec": {"template": template(of)}}}}


_SHAPES: Mapping[str, Callable[[Json], Json]] = {
    "core/v1:Pod": lambda of: of,
    "core/v1:PodTemplate": lambda of: {"metadata": {"name": "web"}, "template": template(of)},
    "core/v1:ReplicationController": _controller,
    "apps/v1:ReplicaSet": _controller,
    "apps/v1:Deployment": _controller,
    "apps/v1:StatefulSet": _controller,
    "apps/v1:DaemonSet": _controller,
    "apps/v1beta1:Deployment": _controller,
    "extensions/v1beta1:DaemonSet": _controller,
    "batch/v1:Job": _controller,
    "batch/v1:CronJob": _job,
    "batch/v1beta1:CronJob": _job,
}


def carriers() -> dict[str, Callable[[Json], Json]]:
    """Every kind that carries a pod by its token, each also as `*Patch` and `*List`, and as custom resources."""
    shapes = dict(_SHAPES)
    for token, shape in _SHAPES.items():
        shapes[f"{token}Patch"] = shape
        shapes[f"{token}List"] = lambda of, shape=shape: {"items": [shape(pod()), shape(of)]}  # type: ignore[misc]
    shapes["core/v1:List"] = lambda of: {"kind": "List", "items": [of]}
    shapes["ray.io/v1:RayCluster"] = lambda of: {
        "spec": {"workerGroupSpecs": [{"replicas": 1, "template": template(of)}]}
    }
    shapes["jobset.x-k8s.io/v1alpha2:JobSet"] = lambda of: {"spec": {"replicatedJobs": [{"template": _controller(of)}]}}
    return {f"kubernetes:{token}": shape for token, shape in shapes.items()}


def changed(of: Json, path: str, value: object) -> Json:
    """The object with one value set; missing parents are made, numbers are indexes, `~` in a key stands for a dot."""
    result = copy.deepcopy(of)
    node: Any = result
    *parents, leaf = [int(step) if step.isdigit() else step.replace("~", ".") for step in path.split(".")]
    for step in parents:
        node = node[step] if isinstance(step, int) else node.setdefault(step, {})
    node[leaf] = value
    return result


def without(of: Json, path: str) -> Json:
    """The object with one key removed."""
    result = copy.deepcopy(of)
    node: Any = result
    *parents, leaf = [int(step) if step.isdigit() else step.replace("~", ".") for step in path.split(".")]
    for step in parents:
        node = node[step]
    del node[leaf]
    return result


def findings(token: str, props: Json, stack: StackFacts = STRICT) -> tuple[Finding, ...]:
    """What the pack finds in a resource that comes through the SDK's real proxy."""
    return judge(token, "logical-name", unknown_checking_proxy(copy.deepcopy(props)), stack, RULES).findings


def rules_and_paths(token: str, props: Json, stack: StackFacts = STRICT) -> set[tuple[str, str]]:
    """Rule and field of every finding."""
    return {(finding.rule, finding.path) for finding in findings(token, props, stack)}
