"""Node Feature Discovery itself, from its Go module, as pods on the real node: what the GPU Operator brings along.

Its CustomResourceDefinitions are the module's; the rest is what its own deployment has, without metrics and probes.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import toolchain
from testbed.stacks import Json
from testbed.waiting import eventually
from tests.support.gvirtus.cases import post
from tests.support.pods.images import Builder
from tests.support.pods.real_node import NAME, RealNode
from tests.support.pods.runs import available, delete
from tests.support.programs import NFD_MASTER, NFD_WORKER
from tests.support.programs.fixtures import NFD_DEFINITIONS, fixtures

_IMAGE = "localhost/nfd:1"
_NAMESPACE = "nfd"
_GROUP = "nfd.k8s-sigs.io"


class Machine:
    """The machine as NFD sees it, instead of the one that runs the tests.

    Attributes:
        folder: its /sys.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._devices = folder / "bus/pci/devices"
        self._devices.mkdir(parents=True)

    def plug(self, address: str, *, vendor: str, device_class: str) -> None:
        """Have a PCI device, at once and whole."""
        attributes = {"vendor": vendor, "class": device_class, "device": "0x2684"}
        attributes |= {"subsystem_vendor": vendor, "subsystem_device": "0x0000"}
        being_made = self.folder / address
        being_made.mkdir()
        for name, value in attributes.items():
            (being_made / name).write_text(f"{value}\n", encoding="ascii")
        being_made.rename(self._devices / address)

    def unplug(self, address: str) -> None:
        """Have it no more."""
        gone = (self._devices / address).rename(self.folder / address)
        shutil.rmtree(gone)


def build(builder: Builder) -> Path:
    """The image's archive."""
    programs = toolchain.install([NFD_MASTER, NFD_WORKER])
    root = builder.folder / "nfd"
    (root / "usr/bin").mkdir(parents=True)
    for program, path in programs.items():
        shutil.copy(path, root / "usr/bin" / program.name)
    builder.image(_IMAGE, "scratch", root, "--env", "PATH=/usr/bin")
    return builder.archive(_IMAGE)


@contextmanager
def node_feature_discovery(node: RealNode, machine: Machine, rule: Json) -> Iterator[None]:
    """Install it, with one rule for as long as the block lasts; the rule's labels go with the rule."""
    api = node.api
    text = (fixtures(NFD_DEFINITIONS) / "nfd-api-crds.yaml").read_text(encoding="utf-8")
    for definition in yaml.safe_load_all(text):
        post(api, definition)
    rules = f"/apis/{_GROUP}/v1alpha1/nodefeaturerules"
    eventually(lambda: api.get(rules).is_success)
    for manifest in _rights():
        post(api, manifest)
    for path in [post(api, manifest) for manifest in _workloads(machine)]:
        available(api, path)
    made = post(api, rule)
    yield
    delete(api, made)
    labels = {label for entry in rule["spec"]["rules"] for label in entry["labels"]}
    eventually(lambda: not labels & set(node.object()["metadata"]["labels"]))


def _rights() -> list[Json]:
    name = {"name": _NAMESPACE}
    rules = [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "list", "patch", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {
            "apiGroups": [_GROUP],
            "resources": ["nodefeatures", "nodefeaturerules", "nodefeaturegroups"],
            "verbs": ["get", "list", "watch", "create", "update", "delete"],
        },
    ]
    account = {"kind": "ServiceAccount", "name": "default", "namespace": _NAMESPACE}
    rbac = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            # The worker sees folders of its node.
            "metadata": name | {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
        },
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": name, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": _NAMESPACE},
            "subjects": [account],
        },
    ]


def _workloads(machine: Machine) -> list[Json]:
    # The default looks again every minute.
    options = {"core": {"sleepInterval": "1s", "featureSources": ["kernel", "pci", "system"], "labelSources": []}}
    worker = _pod("worker", ["nfd-worker", "-no-owner-refs", "-options", json.dumps(options)])
    worker["spec"]["containers"][0]["volumeMounts"] = [{"name": "sys", "mountPath": "/host-sys", "readOnly": True}]
    worker["spec"]["volumes"] = [{"name": "sys", "hostPath": {"path": str(machine.folder), "type": "Directory"}}]
    worker["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NAME}
    master = _pod("master", ["nfd-master"])
    return [
        _workload("Deployment", "master", {"replicas": 1, "template": master}),
        _workload("DaemonSet", "worker", {"template": worker}),
    ]


def _workload(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": _NAMESPACE}
    selector = {"selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec | selector}


def _pod(name: str, command: list[str]) -> Any:  # noqa: ANN401 - JSON that is filled further
    fields = {"NODE_NAME": "spec.nodeName", "KUBERNETES_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    main = {"name": name, "image": _IMAGE, "command": command, "env": env}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [main], "terminationGracePeriodSeconds": 5}}
