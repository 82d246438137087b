"""A cluster for the checks of `doctor`, as the stand-in API server shows it: well, until a test breaks one thing."""

import base64
import copy
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import trustme

from cluster.access.client import Cluster, plural
from cluster.access.client import object_path as path_of
from manifests import every_object
from manifests.kai import queues
from manifests.monitoring.objects import OPERATOR_GROUP
from manifests.node_labels import node_labels
from manifests.ownership import key
from operations.doctor.diagnosis import Choice, Diagnosis, diagnose
from operations.doctor.facts import Facts
from operations.doctor.reading import read_facts
from testbed.stacks import Json, jetson, parse
from tests.support.api_server import POLICIES, Answer, ApiServer, connected, node
from tests.support.hosts.examinations import reports

KINDS = {
    "nodes": ("v1", "Node", ""),
    "pods": ("v1", "Pod", ""),
    "namespaces": ("v1", "Namespace", ""),
    "queues": ("scheduling.run.ai/v2", "Queue", ""),
    "podgroups": ("scheduling.run.ai/v2alpha2", "PodGroup", ""),
    "bindrequests": ("scheduling.run.ai/v1alpha2", "BindRequest", ""),
    "deployments": ("apps/v1", "Deployment", ""),
    "daemonsets": ("apps/v1", "DaemonSet", ""),
    "runtimeclasses": ("node.k8s.io/v1", "RuntimeClass", ""),
    "configs": ("kai.scheduler/v1", "Config", ""),
    "shards": ("kai.scheduler/v1", "SchedulingShard", ""),
    "clusterpolicies": ("nvidia.com/v1", "ClusterPolicy", ""),
    "gpuclusters": ("nvidia.com/v1alpha1", "GPUCluster", ""),
    "mutating": ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", ""),
    "validating": ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", ""),
    "apiservices": ("apiregistration.k8s.io/v1", "APIService", ""),
    "configmaps": ("v1", "ConfigMap", "gpu-operator"),
    "clusterroles": ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
    "clusterrolebindings": ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", ""),
    "prometheuses": (OPERATOR_GROUP, "Prometheus", ""),
    "slices": ("discovery.k8s.io/v1", "EndpointSlice", "kai-scheduler"),
    "kai revisions": ("v1", "Secret", "kai-scheduler"),
    "operator revisions": ("v1", "Secret", "gpu-operator"),
}
"""What is listed: version, kind, and the namespace where it is read in one alone."""
_ALL_LISTED = frozenset({"Deployment", "DaemonSet", "Queue", "SchedulingShard"})
"""Kinds of which a world's lists have everything, the stack's own objects too."""
_OF_KAI = frozenset({"Queue", "PodGroup", "BindRequest", "Config", "SchedulingShard"})
_POLICIES = frozenset({"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"})


def list_path(version: str, kind: str, namespace: str = "") -> str:
    """Where the API server lists a kind."""
    group = "api/v1" if version == "v1" else f"apis/{version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/{group}{place}/{plural(kind)}"


PATHS = {name: list_path(*kind) for name, kind in KINDS.items()}
OPERANDS = ("binder", "pod-grouper", "podgroup-controller", "queue-controller", "admission", "kai-scheduler-default")
STACK = "kai-anywhere/jetson"
RESERVATION = "kai-resource-reservation"
GROUP = "b9a3b8f2"
OLD = "2026-01-01T00:00:00Z"
_INSTALLED = "2026-02-01T00:00:00Z"
LATER = "2099-01-01T00:00:00Z"
"""When what is younger than everything else was made."""
IMAGE = "example.com/image:v0.18.6"


def named(name: str, namespace: str = "", **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """An object's metadata."""
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}}


def _workload(name: str, image: str, **pod_spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    spec = {"containers": [{"name": name, "image": image}], **pod_spec}
    return {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
    }


def deployment(name: str, namespace: str, image: str = IMAGE) -> dict[str, Any]:
    """A Deployment that runs."""
    return {**named(name, namespace), "spec": {"replicas": 1, **_workload(name, image)}, "status": available(1)}


def available(pods: int, of: int = 1) -> dict[str, Any]:
    """The status of a Deployment of which so many pods are available."""
    return {"replicas": of, "updatedReplicas": of, "readyReplicas": pods, "availableReplicas": pods}


def daemon_set(name: str, namespace: str = "gpu-operator", nodes: int = 1) -> dict[str, Any]:
    """A DaemonSet that runs on so many nodes."""
    return {
        **named(name, namespace),
        "spec": _workload(name, IMAGE, nodeSelector={}),
        "status": {"desiredNumberScheduled": nodes, "numberReady": nodes},
    }


def pod(  # noqa: PLR0913 - what a pod has
    name: str,
    namespace: str = "default",
    *,
    node: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    scheduler: str = "kai-scheduler",
    phase: str = "",
    created: str = OLD,
    **status: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    """A pod; on a node it runs and is ready."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]} if node else {}
    return {
        **named(name, namespace, labels=labels or {}, annotations=annotations or {}, creationTimestamp=created),
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": IMAGE}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": phase or ("Running" if node else "Pending"), **ready, **status},
    }


def fraction(name: str, node: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a pod's arguments
    """A pod that asks for a part of a GPU, in a group of its own."""
    labels = {"kai.scheduler/queue": "default-queue"} | ({"runai-gpu-group": GROUP} if node else {})
    return pod(
        name,
        node=node,
        labels=labels | more.pop("labels", {}),
        annotations={"gpu-memory": "30720", "pod-group-name": f"pg-{name}"} | more.pop("annotations", {}),
        **more,
    )


def pod_group(name: str, queue: str = "default-queue", **status: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A PodGroup."""
    return {**named(name, "default"), "spec": {"queue": queue, "minMember": 1}, "status": status}


def unschedulable(message: str) -> dict[str, Any]:
    """The status of a PodGroup that the scheduler can't place."""
    return {
        "schedulingConditions": [{"type": "UnschedulableOnNodePool", "status": "True", "message": message}],
    }


def _webhook(name: str, service: str, resource: str, authority: str) -> dict[str, Any]:
    return {
        **named(name),
        "webhooks": [
            {
                "name": f"{name}.example.com",
                "failurePolicy": "Fail",
                "clientConfig": {
                    "service": {"name": service, "namespace": "kai-scheduler"},
                    "caBundle": authority,
                },
                "rules": [
                    {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def endpoints(service: str, namespace: str = "kai-scheduler", /, **conditions: bool) -> dict[str, Any]:
    """The address of a Service, by what it says of itself."""
    return {
        **named(f"{service}-x", namespace, labels={"kubernetes.io/service-name": service}),
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.7"], "conditions": conditions}],
    }


def revision(release: str, namespace: str, number: int, status: str) -> dict[str, Any]:
    """The Secret in which Helm keeps a revision of a release."""
    labels = {"owner": "helm", "name": release, "version": str(number), "status": status}
    return {
        **named(f"sh.helm.release.v1.{release}.v{number}", namespace, labels=labels, creationTimestamp=_INSTALLED),
        "type": "helm.sh/release.v1",
    }


_OF_POLICY = ("daemonsets", "dcgm", "dcgmExporter", "driver", "gfd", "nodeStatusExporter", "operator", "toolkit")
"""What a ClusterPolicy has to say, if only that it says nothing (GPU Operator v26.7.2)."""
_AUTHORITY = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()


@dataclass
class World:
    """What the API server has.

    Attributes:
        settings: of the stack, as JSON; None for a cluster that no stack is named for.
        lists: objects by the names of `PATHS`.
        gone: keys of the stack's objects that are not there.
        texts: answers that are no JSON, by path.
        refused: status by path, for what the user may not read.
        events: by namespace.
        kinds: of KAI's, by plural, that the API server knows.
        prometheus_operator: whether it knows the Prometheus Operator's kinds.
        minor: of Kubernetes.
        policies: whether it serves MutatingAdmissionPolicy v1.
        hosts: what the stack's hosts say, or why they say nothing, by node; None where nobody asks them.
    """

    settings: Json | None = field(default_factory=jetson)
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    kinds: set[str] = field(
        default_factory=lambda: {"queues", "podgroups", "bindrequests", "configs", "schedulingshards"}
    )
    prometheus_operator: bool = True
    minor: str = "36"
    policies: bool = True
    hosts: dict[str, Json | str] | None = None

    def one(self, of: str, name: str) -> dict[str, Any]:
        """An object by its name."""
        return next(manifest for manifest in self.lists[of] if manifest["metadata"]["name"] == name)

    def remove(self, of: str, name: str) -> None:
        """Take an object away."""
        self.lists[of] = [manifest for manifest in self.lists[of] if manifest["metadata"]["name"] != name]

    def scale(self, name: str, replicas: int = 0) -> None:
        """Scale a Deployment; the pods of 0 replicas are gone."""
        deployment = self.one("deployments", name)
        deployment["spec"]["replicas"] = replicas
        deployment["status"] = {}

    def event(self, namespace: str, name: str, reason: str, message: str, kind: str = "Pod") -> None:
        """Note down a warning about a pod, or another object."""
        about = {"kind": kind, "name": name, "namespace": namespace}
        said = {"type": "Warning", "reason": reason, "message": message}
        event = {**named(f"{name}.1", namespace), "involvedObject": about, **said}
        self.events.setdefault(namespace, []).append(event)

    def label(self, node_name: str, label: str, value: str | None) -> None:
        """Set or remove a label of a node."""
        labels = self.one("nodes", node_name)["metadata"]["labels"]
        labels.pop(label, None)
        if value is not None:
            labels[label] = value

    def objects(self) -> dict[str, dict[str, Any]]:
        """Every object by its path.

        An object whose kind the API server does not know, or whose namespace is gone, is not there.
        """
        stack = every_object.objects(parse(self.settings)).values() if self.settings is not None else ()
        every = {key(manifest): manifest for manifest in stack if manifest["kind"] not in _ALL_LISTED}
        listed = [
            {"apiVersion": version, "kind": kind, **manifest}
            for name, (version, kind, _) in KINDS.items()
            for manifest in self.lists.get(name, [])
        ]
        events = [{"apiVersion": "v1", "kind": "Event", **event} for of in self.events.values() for event in of]
        every |= {key(manifest): manifest for manifest in (*listed, *events)}
        return {
            path_of(manifest): manifest
            for name, manifest in every.items()
            if name not in self.gone
            and f"Namespace/{manifest['metadata'].get('namespace')}" not in self.gone
            and self.knows(manifest["apiVersion"], manifest["kind"])
        }

    def knows(self, version: str, kind: str) -> bool:
        """Whether the API server knows a kind."""
        if kind in _OF_KAI:
            return plural(kind) in self.kinds
        if kind in _POLICIES:
            return self.policies
        return version != OPERATOR_GROUP or self.prometheus_operator

    def serve(self, api: ApiServer) -> None:
        """Answer as this cluster does."""
        version = {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.2"}
        api.serve("/version", version)
        api.serve(POLICIES, {"resources": [{"name": "mutatingadmissionpolicies"}] if self.policies else []})
        lists: dict[str, list[dict[str, Any]]] = {
            PATHS[name]: [] for name, (version, kind, _) in KINDS.items() if self.knows(version, kind)
        }
        for path, manifest in self.objects().items():
            api.serve(path, manifest)
            kind = manifest["apiVersion"], manifest["kind"]
            for place in {"", manifest["metadata"].get("namespace", "")}:
                lists.setdefault(list_path(*kind, place), []).append(manifest)
        for path, items in lists.items():
            api.serve(path, {"items": items})
        for group, plurals in (
            ("scheduling.run.ai/v2", ["queues"]),
            ("scheduling.run.ai/v2alpha2", ["podgroups"]),
            ("scheduling.run.ai/v1alpha2", ["bindrequests"]),
            ("kai.scheduler/v1", ["configs", "schedulingshards"]),
        ):
            there = [plural for plural in plurals if plural in self.kinds]
            api.serve(f"/apis/{group}", {"resources": [{"name": name} for name in there]})
        operators = ["servicemonitors", "prometheusrules"] if self.prometheus_operator else []
        api.serve("/apis/monitoring.coreos.com/v1", {"resources": [{"name": operator} for operator in operators]})
        for path, text in self.texts.items():
            api.answers[path] = Answer(200, text.encode())
        for path, status in self.refused.items():
            api.fail(path, status)

    def facts(self) -> Facts:
        """What is read of it; no socket is opened, which takes half the time."""
        api = ApiServer()
        self.serve(api)
        with closing(connected(api.answered)) as cluster:
            return self.read(cluster)

    def read(self, cluster: Cluster) -> Facts:
        """What is read of a cluster that shows it, and what its hosts say."""
        settings = parse(self.settings) if self.settings is not None else None
        facts = read_facts(cluster, settings, STACK if settings else "")
        if self.hosts is None:
            return facts
        return replace(facts, hosts=reports(self.settings or jetson(), self.hosts))

    def diagnosis(self, choice: Choice | None = None) -> Diagnosis:
        """What the checks say of it."""
        return diagnose(self.facts(), choice)


def well(settings: Json | None = None) -> World:
    """A cluster on which the Jetson stack runs, with one pod that shares its GPU."""
    stack = settings or jetson()
    world = World(settings=stack)
    parsed = parse(stack)
    jetson_1 = node("jetson-1", labels=node_labels(parsed)["jetson-1"] | {"nvidia.com/gpu.present": "true"})
    jetson_1["status"]["conditions"] = [{"type": "Ready", "status": "True", "message": "kubelet is ready"}]
    jetson_1["status"]["nodeInfo"]["kernelVersion"] = "6.8.12-tegra"
    plain = node("cpu-1", architecture="amd64", gpus=0, labels={"kubernetes.io/arch": "amd64"})
    plain["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    kai = [deployment(name, "kai-scheduler") for name in ("kai-operator", *OPERANDS)]
    nfd = "gpu-operator-node-feature-discovery-master"
    plugin = "nvidia-device-plugin-daemonset"
    reservation = pod(
        "gpu-reservation-1",
        RESERVATION,
        node="jetson-1",
        labels={"app": RESERVATION, "runai-gpu-group": GROUP},
        annotations={"run.ai/reserve_for_gpu_index": "GPU-1"},
        scheduler="default-scheduler",
    )
    reservation["spec"]["runtimeClassName"] = "nvidia"
    config = {
        **named("kai-config"),
        "spec": {
            "namespace": "kai-scheduler",
            "global": {"schedulerName": "kai-scheduler", "gpuSharingMode": "NonMemoryEnforced"},
            "admission": {"gpuFractionRuntimeClassName": "nvidia"},
            "binder": {"resourceReservation": {"namespace": RESERVATION, "runtimeClassName": "nvidia"}},
        },
        "status": {"conditions": [{"type": "Available", "status": "True", "reason": "available"}]},
    }
    operator = {"app.kubernetes.io/version": "v26.7.2"}
    world.lists |= {
        "nodes": [jetson_1, plain],
        "pods": [
            reservation,
            fraction("arm", node="jetson-1"),
            pod("plugin-1", "gpu-operator", node="jetson-1", labels={"app": plugin}, scheduler="default-scheduler"),
        ],
        "namespaces": [
            named("kai-scheduler") | {"status": {"phase": "Active"}},
            named("gpu-operator") | {"status": {"phase": "Active"}},
            named(RESERVATION, labels={"pod-security.kubernetes.io/enforce": "privileged"})
            | {"status": {"phase": "Active"}},
        ],
        "queues": [copy.deepcopy(queue) for queue in queues(parsed).values()],
        "podgroups": [pod_group("pg-arm")],
        "bindrequests": [],
        "deployments": [*kai, deployment("gpu-operator", "gpu-operator"), deployment(nfd, "gpu-operator")],
        "daemonsets": [daemon_set(plugin), daemon_set("nvidia-operator-validator")],
        "runtimeclasses": [named("nvidia") | {"handler": "nvidia"}],
        "configs": [config],
        "shards": [named("default") | {"spec": {}}],
        "clusterpolicies": [
            named("cluster-policy", labels=operator)
            | {
                "spec": {part: {} for part in _OF_POLICY}
                | {"cdi": {"enabled": True}, "devicePlugin": {"config": {"name": "profiles"}}},
                "status": {"state": "ready"},
            }
        ],
        "configmaps": [named("profiles", "gpu-operator") | {"data": {"sliced": "version: v1"}}],
        "mutating": [_webhook("mutating-kai-admission", "admission", "pods", _AUTHORITY)],
        "validating": [
            _webhook("validating-kai-admission", "admission", "pods", _AUTHORITY),
            _webhook("kai-queue-validation-v2", "queue-controller", "queues", _AUTHORITY),
        ],
        "slices": [endpoints("admission", ready=True), endpoints("queue-controller", ready=True)],
        "kai revisions": [revision("kai-scheduler", "kai-scheduler", 1, "deployed")],
        "operator revisions": [revision("gpu-operator", "gpu-operator", 1, "deployed")],
    }
    return world
