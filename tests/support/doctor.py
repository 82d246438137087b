"""A cluster for the checks of `doctor`, as the stand-in API server shows it: well, until a test breaks one thing."""

import base64
import copy
from dataclasses import dataclass, field, replace
from typing import Any

import trustme

from cluster.client import Cluster
from cluster.client import object_path as path_of
from config.cluster import ClusterSettings, Distribution
from manifests import every_object
from manifests.kai import queues
from manifests.node_labels import node_labels
from manifests.ownership import key
from operations.doctor.diagnosis import Choice, Diagnosis, diagnose
from operations.doctor.facts import Facts
from operations.doctor.reading import read_facts
from testbed.stacks import Json, jetson, parse
from tests.support.api_server import POLICIES, Answer, ApiServer, kubeconfig, node, write_kubeconfig
from tests.support.hosts.examinations import reports

_CORE, _APPS, _ADMISSION = "/api/v1", "/apis/apps/v1", "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "nodes": f"{_CORE}/nodes",
    "pods": f"{_CORE}/pods",
    "namespaces": f"{_CORE}/namespaces",
    "queues": "/apis/scheduling.run.ai/v2/queues",
    "podgroups": "/apis/scheduling.run.ai/v2alpha2/podgroups",
    "bindrequests": "/apis/scheduling.run.ai/v1alpha2/bindrequests",
    "deployments": f"{_APPS}/deployments",
    "daemonsets": f"{_APPS}/daemonsets",
    "runtimeclasses": "/apis/node.k8s.io/v1/runtimeclasses",
    "configs": "/apis/kai.scheduler/v1/configs",
    "shards": "/apis/kai.scheduler/v1/schedulingshards",
    "clusterpolicies": "/apis/nvidia.com/v1/clusterpolicies",
    "gpuclusters": "/apis/nvidia.com/v1alpha1/gpuclusters",
    "mutating": f"{_ADMISSION}/mutatingwebhookconfigurations",
    "validating": f"{_ADMISSION}/validatingwebhookconfigurations",
    "configmaps": f"{_CORE}/namespaces/gpu-operator/configmaps",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "prometheuses": "/apis/monitoring.coreos.com/v1/prometheuses",
    "slices": "/apis/discovery.k8s.io/v1/namespaces/kai-scheduler/endpointslices",
    "kai revisions": f"{_CORE}/namespaces/kai-scheduler/secrets",
    "operator revisions": f"{_CORE}/namespaces/gpu-operator/secrets",
}
OPERANDS = ("binder", "pod-grouper", "podgroup-controller", "queue-controller", "admission", "kai-scheduler-default")
RESERVATION = "kai-resource-reservation"
GROUP = "b9a3b8f2"
OLD = "2026-01-01T00:00:00Z"


def named(name: str, namespace: str = "", **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """An object's metadata."""
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}}


def deployment(name: str, namespace: str, image: str = "example.com/image:v0.18.6") -> dict[str, Any]:
    """A Deployment that runs."""
    template = {"spec": {"containers": [{"name": name, "image": image}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {**named(name, namespace), "spec": spec, "status": {"availableReplicas": 1}}


def daemon_set(name: str, namespace: str = "gpu-operator", nodes: int = 1) -> dict[str, Any]:
    """A DaemonSet that runs on so many nodes."""
    spec = {"selector": {"matchLabels": {"app": name}}, "template": {"spec": {"nodeSelector": {}}}}
    return {
        **named(name, namespace),
        "spec": spec,
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
            "containers": [{"name": "main"}],
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
                "rules": [{"resources": [resource]}],
            }
        ],
    }


def endpoints(service: str, *, ready: bool = True) -> dict[str, Any]:
    """The addresses of a Service."""
    return {
        **named(f"{service}-x", "kai-scheduler", labels={"kubernetes.io/service-name": service}),
        "endpoints": [{"conditions": {"ready": ready}}],
    }


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
        return next(each for each in self.lists[of] if each["metadata"]["name"] == name)

    def remove(self, of: str, name: str) -> None:
        """Take an object away."""
        self.lists[of] = [each for each in self.lists[of] if each["metadata"]["name"] != name]

    def scale(self, name: str, replicas: int = 0) -> None:
        """Scale a Deployment; the pods of 0 replicas are gone."""
        found = self.one("deployments", name)
        found["spec"]["replicas"] = replicas
        found["status"] = {}

    def event(self, namespace: str, name: str, reason: str, message: str) -> None:
        """Note down a warning about a pod."""
        about = {"kind": "Pod", "name": name}
        event = {**named(f"{name}.1", namespace), "involvedObject": about, "reason": reason, "message": message}
        self.events.setdefault(namespace, []).append(event)

    def label(self, node_name: str, label: str, value: str | None) -> None:
        """Set or remove a label of a node."""
        labels = self.one("nodes", node_name)["metadata"]["labels"]
        labels.pop(label, None)
        if value is not None:
            labels[label] = value

    def serve(self, api: ApiServer) -> None:
        """Answer as this cluster does."""
        version = {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.2"}
        api.serve("/version", version)
        api.serve(POLICIES, {"resources": [{"name": "mutatingadmissionpolicies"}] if self.policies else []})
        for name, path in PATHS.items():
            api.serve(path, {"items": self.lists.get(name, [])})
        for group, plurals in (
            ("scheduling.run.ai/v2", ["queues"]),
            ("scheduling.run.ai/v2alpha2", ["podgroups"]),
            ("scheduling.run.ai/v1alpha2", ["bindrequests"]),
            ("kai.scheduler/v1", ["configs", "schedulingshards"]),
        ):
            there = [each for each in plurals if each in self.kinds]
            api.serve(f"/apis/{group}", {"resources": [{"name": each} for each in there]})
        operators = ["servicemonitors", "prometheusrules"] if self.prometheus_operator else []
        api.serve("/apis/monitoring.coreos.com/v1", {"resources": [{"name": each} for each in operators]})
        if self.settings is not None:
            for manifest in every_object.objects(parse(self.settings)).values():
                if key(manifest) not in self.gone:
                    api.serve(path_of(manifest), manifest)
        for namespace, events in self.events.items():
            api.serve(f"{_CORE}/namespaces/{namespace}/events", {"items": events})
        for path, text in self.texts.items():
            api.answers[path] = Answer(200, text.encode())
        for path, status in self.refused.items():
            api.fail(path, status)

    def facts(self, api: ApiServer, folder: Any) -> Facts:  # noqa: ANN401 - a path
        """What is read of it."""
        self.serve(api)
        file = write_kubeconfig(folder / "kubeconfig", kubeconfig(api.url))
        cluster = Cluster.connect(ClusterSettings(distribution=Distribution.K3S, kubeconfig=file))
        try:
            settings = parse(self.settings) if self.settings is not None else None
            facts = read_facts(cluster, settings, "kai-anywhere/jetson" if settings else "")
            if self.hosts is None:
                return facts
            return replace(facts, hosts=reports(self.settings or jetson(), self.hosts))
        finally:
            cluster.close()

    def diagnosis(self, api: ApiServer, folder: Any, choice: Choice | None = None) -> Diagnosis:  # noqa: ANN401
        """What the checks say of it."""
        return diagnose(self.facts(api, folder), choice)


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
        "queues": [copy.deepcopy(each) for each in queues(parsed).values()],
        "podgroups": [pod_group("pg-arm")],
        "bindrequests": [],
        "deployments": [*kai, deployment("gpu-operator", "gpu-operator"), deployment(nfd, "gpu-operator")],
        "daemonsets": [daemon_set(plugin), daemon_set("nvidia-operator-validator")],
        "runtimeclasses": [named("nvidia")],
        "configs": [config],
        "shards": [named("default") | {"spec": {}}],
        "clusterpolicies": [
            named("cluster-policy", labels=operator)
            | {
                "spec": {"cdi": {"enabled": True}, "devicePlugin": {"config": {"name": "profiles"}}},
                "status": {"state": "ready"},
            }
        ],
        "configmaps": [named("profiles", "gpu-operator") | {"data": {"sliced": "version: v1"}}],
        "mutating": [_webhook("mutating-kai-admission", "admission", "pods", _AUTHORITY)],
        "validating": [
            _webhook("validating-kai-admission", "admission", "pods", _AUTHORITY),
            _webhook("kai-queue-validation-v2", "queue-controller", "queues", _AUTHORITY),
        ],
        "slices": [endpoints("admission"), endpoints("queue-controller")],
        "kai revisions": [_revision("v1", "deployed")],
        "operator revisions": [_revision("v1", "deployed")],
    }
    return world


def _revision(number: str, status: str) -> dict[str, Any]:
    return named(f"sh.helm.release.v1.kai-scheduler.{number}", labels={"status": status}, creationTimestamp=OLD)
