"""This repository's program with four resources that the policy pack must stop, five fields in all."""  # noqa: INP001 - a Pulumi program

import runpy
import sys
from pathlib import Path

import pulumi
from pulumi_kubernetes import Provider
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import Namespace, Pod
from pulumi_kubernetes.rbac.v1 import ClusterRole

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT))
runpy.run_path(str(ROOT / "__main__.py"))

settings = pulumi.Config("kai-anywhere").require_object("settings")
opts = pulumi.ResourceOptions(provider=Provider("tampered", kubeconfig=settings["cluster"]["kubeconfig"]))

Pod(
    "bad-pod",
    metadata={"name": "bad-pod", "namespace": "default"},
    spec={
        "containers": [{"name": "a", "image": "a:1", "securityContext": {"privileged": True}}],
        "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
    },
    opts=opts,
)
Deployment(
    "bad-deployment",
    metadata={"name": "bad-deployment", "namespace": "default"},
    spec={
        "selector": {"matchLabels": {"app": "bad"}},
        "template": {
            "metadata": {"labels": {"app": "bad"}},
            "spec": {"hostNetwork": True, "containers": [{"name": "a", "image": "a:1"}]},
        },
    },
    opts=opts,
)
Namespace(
    "bad-namespace",
    metadata={"name": "bad-namespace", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    opts=opts,
)
ClusterRole(
    "bad-role",
    metadata={"name": "bad-role"},
    rules=[{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate"]}],
    opts=opts,
)
