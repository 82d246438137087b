"""What the checks know of a cluster: read once, by operations/doctor/reading.py."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum, unique
from functools import cached_property
from typing import Any

from pydantic import AliasPath, Field

from cluster import snapshot
from cluster.access.answers.answer import Answer, Condition
from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import ApiService, Container, HelmRevision
from cluster.access.answers.pods import Event, Pod
from cluster.access.answers.server import Version
from cluster.access.lists import Unseen
from cluster.snapshot import Snapshot
from config.stack import StackSettings
from gpu_sharing.request import GPU_GROUP, SCHEDULER
from manifests import reservation
from operations.doctor.hosts.answer import HostReport
from operations.doctor.monitoring import Monitoring, Selector

KAI_OPERATOR = "kai-operator"
"""KAI's operator's Deployment (KAI v0.17.0 deployments/kai-scheduler/templates/services)."""
GPU_OPERATOR = "gpu-operator"
NOT_ADMITTED = "UnexpectedAdmissionError"
"""The reason of a pod that the kubelet refused: it was bound, and never got a device."""
SETTLING = timedelta(seconds=60)
"""What is younger may still become what it should be: KAI waits 40 s for a reservation pod by default.

Reservation pods themselves have less (`checks.reservation_pods`): KAI deletes one that is older without an answer.
"""


@unique
class Source(StrEnum):
    """What is read, by the name that a person knows it by."""

    NODES = snapshot.NODES
    PODS = snapshot.PODS
    QUEUES = snapshot.QUEUES
    POD_GROUPS = snapshot.POD_GROUPS
    BIND_REQUESTS = snapshot.BIND_REQUESTS
    DEPLOYMENTS = "Deployments"
    DAEMON_SETS = "DaemonSets"
    RUNTIME_CLASSES = "RuntimeClasses"
    NAMESPACES = "namespaces"
    CONFIG = snapshot.CONFIG
    SHARDS = "KAI's SchedulingShards"
    CLUSTER_POLICIES = "the GPU Operator's ClusterPolicies"
    GPU_CLUSTERS = "the GPU Operator's GPUClusters"
    WEBHOOKS = "the admission webhooks"
    ENDPOINTS = "the webhooks' EndpointSlices"
    API_SERVICES = "APIServices"
    RELEASES = "Helm's revisions"
    EVENTS = "events"
    PROFILES = "the device plugin's ConfigMap"
    KINDS = "KAI's kinds"
    STACK = "the stack's objects"
    HOSTS = "the stack's hosts"
    MONITORING = "the exporter's rights, and who asks it"


class Named(Answer):
    """An object, by its name."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))


class RuntimeClass(Named):
    """A RuntimeClass, and what the container runtime of a node has to have for it."""

    handler: str = ""


class Namespaced(Named):
    """An object of a namespace."""

    namespace: str = Field(validation_alias=AliasPath("metadata", "namespace"))


class Deployment(Namespaced):
    """A Deployment."""

    desired: int = Field(default=1, validation_alias=AliasPath("spec", "replicas"))
    available: int = Field(default=0, validation_alias=AliasPath("status", "availableReplicas"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))
    containers: list[Container] = Field(
        default=[], validation_alias=AliasPath("spec", "template", "spec", "containers")
    )
    selector: dict[str, str] = Field(default={}, validation_alias=AliasPath("spec", "selector", "matchLabels"))


class DaemonSet(Namespaced):
    """A DaemonSet."""

    desired: int = Field(default=0, validation_alias=AliasPath("status", "desiredNumberScheduled"))
    ready: int = Field(default=0, validation_alias=AliasPath("status", "numberReady"))
    selector: dict[str, str] = Field(default={}, validation_alias=AliasPath("spec", "selector", "matchLabels"))
    node_selector: dict[str, str] = Field(
        default={}, validation_alias=AliasPath("spec", "template", "spec", "nodeSelector")
    )
    tolerations: list[dict[str, Any]] = Field(
        default=[], validation_alias=AliasPath("spec", "template", "spec", "tolerations")
    )


class KaiNamespace(Named):
    """A namespace and how it stands."""

    phase: str = Field(default="", validation_alias=AliasPath("status", "phase"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))


class KaiConfig(Named):
    """KAI's Config (kai.scheduler/v1), as far as checks ask (KAI v0.17.0 pkg/apis/kai/v1, v0.18 for the mode)."""

    namespace: str = Field(default="", validation_alias=AliasPath("spec", "namespace"))
    scheduler_name: str = Field(default="", validation_alias=AliasPath("spec", "global", "schedulerName"))
    sharing_mode: str = Field(default="", validation_alias=AliasPath("spec", "global", "gpuSharingMode"))
    sharing: bool | None = Field(default=None, validation_alias=AliasPath("spec", "admission", "gpuSharing"))
    fraction_class: str | None = Field(
        default=None, validation_alias=AliasPath("spec", "admission", "gpuFractionRuntimeClassName")
    )
    cdi: bool | None = Field(default=None, validation_alias=AliasPath("spec", "binder", "cdiEnabled"))
    reservation: dict[str, Any] = Field(default={}, validation_alias=AliasPath("spec", "binder", "resourceReservation"))
    spec: dict[str, Any] = Field(default={})
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))

    def is_on(self, section: str) -> bool:
        """Whether a service of the Config is on."""
        enabled = ((self.spec.get(section) or {}).get("service") or {}).get("enabled")
        return enabled is not False


class Shard(Named):
    """A SchedulingShard: the nodes of one scheduler, by the value of their pool label; empty for those without one."""

    pool: str = Field(default="", validation_alias=AliasPath("spec", "partitionLabelValue"))


class ClusterPolicy(Named):
    """The GPU Operator's ClusterPolicy."""

    state: str = Field(default="", validation_alias=AliasPath("status", "state"))
    cdi: bool | None = Field(default=None, validation_alias=AliasPath("spec", "cdi", "enabled"))
    nri: bool | None = Field(default=None, validation_alias=AliasPath("spec", "cdi", "nriPluginEnabled"))
    runtime_class: str = Field(default="", validation_alias=AliasPath("spec", "operator", "runtimeClass"))
    profiles: str = Field(default="", validation_alias=AliasPath("spec", "devicePlugin", "config", "name"))
    device_plugin: bool | None = Field(default=None, validation_alias=AliasPath("spec", "devicePlugin", "enabled"))
    conditions: list[Condition] = Field(default=[], validation_alias=AliasPath("status", "conditions"))


class Rule(Answer):
    """What a webhook judges."""

    groups: list[str] = Field(default=[], alias="apiGroups")
    resources: list[str] = Field(default=[])

    def names(self, group: str, resource: str) -> bool:
        """Whether it names a kind, by its group and plural, or all subresources of it."""
        names = {resource, f"{resource}/*", "*", "*/*"}
        return not {group, "*"}.isdisjoint(self.groups) and not names.isdisjoint(self.resources)


class Webhook(Answer):
    """One webhook of a configuration."""

    name: str = ""
    failure_policy: str = Field(default="Fail", alias="failurePolicy")
    service: str = Field(default="", validation_alias=AliasPath("clientConfig", "service", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("clientConfig", "service", "namespace"))
    ca_bundle: str = Field(default="", validation_alias=AliasPath("clientConfig", "caBundle"))
    rules: list[Rule] = Field(default=[])
    namespaces: Selector = Field(default=Selector(), alias="namespaceSelector")
    objects: Selector = Field(default=Selector(), alias="objectSelector")
    conditions: list[dict[str, Any]] = Field(default=[], alias="matchConditions")

    @property
    def resources(self) -> tuple[str, ...]:
        """What it judges, by plural."""
        return tuple(sorted({resource for rule in self.rules for resource in rule.resources}))

    def judges(self, group: str, resource: str) -> bool:
        """Whether it judges some objects of a kind, by its group and plural."""
        return any(rule.names(group, resource) for rule in self.rules)


class WebhookConfiguration(Named):
    """A MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""

    webhooks: list[Webhook] = Field(default=[])


class Endpoint(Answer):
    """One address behind a Service."""

    ready: bool | None = Field(default=None, validation_alias=AliasPath("conditions", "ready"))


class EndpointSlice(Namespaced):
    """Addresses behind a Service."""

    endpoints: list[Endpoint] | None = None


class ConfigMap(Namespaced):
    """A ConfigMap."""

    data: dict[str, str] = Field(default={})


@dataclass(frozen=True)
class Release:
    """A Helm release and its stored revisions."""

    namespace: str
    name: str
    revisions: tuple[HelmRevision, ...]


@dataclass(frozen=True)
class Facts:
    """A cluster at one moment.

    Attributes:
        snapshot: nodes, pods, and what KAI keeps.
        stack: its name as project/name, for labels' owners; empty without one.
        settings: what the stack says; None where none was named.
        version: the API server's.
        unseen: what could not be read.
        missing: the stack's objects that are not there, as Kind/namespace/name; None where the stack was not looked at.
        profiles: the keys of the device plugin's ConfigMap; None where it is not there.
        kinds: KAI's kinds that the API server knows.
        logs: the last lines of reservation pods that do not say their GPU, by name.
        policy_versions: in which MutatingAdmissionPolicy is served.
        monitoring: the exporter's rights, and who asks it; empty where the stack has no metrics.
        hosts: what the stack's hosts say, by node; None where they were not asked.
    """

    snapshot: Snapshot = field(default_factory=lambda: Snapshot(datetime.now(UTC)))
    stack: str = ""
    settings: StackSettings | None = None
    version: Version | None = None
    unseen: Mapping[Source, Unseen] = field(default_factory=dict)
    deployments: tuple[Deployment, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] = ()
    namespaces: tuple[KaiNamespace, ...] = ()
    configs: tuple[KaiConfig, ...] = ()
    shards: tuple[Shard, ...] = ()
    cluster_policies: tuple[ClusterPolicy, ...] = ()
    gpu_clusters: tuple[Named, ...] = ()
    mutating_webhooks: tuple[WebhookConfiguration, ...] = ()
    validating_webhooks: tuple[WebhookConfiguration, ...] = ()
    endpoint_slices: tuple[EndpointSlice, ...] = ()
    api_services: tuple[ApiService, ...] = ()
    releases: tuple[Release, ...] = ()
    events: tuple[Event, ...] = ()
    profiles: frozenset[str] | None = None
    kinds: frozenset[str] = frozenset()
    missing: frozenset[str] | None = None
    planned: int = 0
    logs: Mapping[str, str] = field(default_factory=dict)
    policy_versions: frozenset[str] = frozenset()
    monitoring: Monitoring = field(default_factory=Monitoring)
    hosts: Mapping[str, HostReport] | None = None

    @property
    def config(self) -> KaiConfig | None:
        """KAI's Config; its name is fixed."""
        return next((config for config in self.configs if config.name == "kai-config"), None)

    @cached_property
    def kai_namespace(self) -> str:
        """The namespace of KAI's control plane."""
        if self.config is not None and self.config.namespace:
            return self.config.namespace
        operator = next((deployment for deployment in self.deployments if deployment.name == KAI_OPERATOR), None)
        if operator is not None:
            return operator.namespace
        return self.settings.kai.namespace if self.settings else "kai-scheduler"

    @cached_property
    def operator_namespace(self) -> str:
        """The namespace of the GPU Operator."""
        operator = next((deployment for deployment in self.deployments if deployment.name == GPU_OPERATOR), None)
        if operator is not None:
            return operator.namespace
        return self.settings.gpu_operator.namespace if self.settings else "gpu-operator"

    @cached_property
    def reservation_namespace(self) -> str:
        """The namespace of KAI's reservation pods."""
        return str((self.config.reservation if self.config else {}).get("namespace") or reservation.NAMESPACE)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """What remedies name: the stack, and where things are in this cluster."""
        return {
            "stack": self.stack.rpartition("/")[2] or "STACK",
            "kai_namespace": self.kai_namespace,
            "operator_namespace": self.operator_namespace,
            "admission_namespace": self.settings.admission.namespace if self.settings else "kai-anywhere",
            "reservation_namespace": self.reservation_namespace,
            "scheduler": self.scheduler_name,
            "pool_label": self.pool_label,
        }

    @cached_property
    def kai_is_there(self) -> bool:
        """Whether anything of KAI's is installed."""
        return bool(self.configs or any(deployment.name == KAI_OPERATOR for deployment in self.deployments))

    @cached_property
    def has_operator(self) -> bool:
        """Whether the GPU Operator is installed, or should be."""
        installs = self.settings is not None and self.settings.gpu_operator.install
        deployed = any(deployment.name == GPU_OPERATOR for deployment in self.deployments)
        return bool(installs or deployed or self.cluster_policies)

    @cached_property
    def scheduler_name(self) -> str:
        """What pods of KAI name as their scheduler."""
        return (self.config.scheduler_name if self.config else "") or SCHEDULER

    @cached_property
    def pool_label(self) -> str:
        """The label by which shards divide nodes."""
        return self.snapshot.pool_label

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """By name."""
        return {node.name: node for node in self.snapshot.nodes}

    @cached_property
    def gpu_nodes(self) -> tuple[Node, ...]:
        """Nodes with a GPU of their own, by what they tell of themselves, or as a Jetson of the stack."""
        jetsons = self.settings.platform.jetsons if self.settings else {}
        return tuple(node for node in self.snapshot.nodes if node.tells_of_gpus or node.name in jetsons)

    @cached_property
    def gpu_node_names(self) -> frozenset[str]:
        """Their names."""
        return frozenset(node.name for node in self.gpu_nodes)

    @cached_property
    def kai_gpu_nodes(self) -> tuple[Node, ...]:
        """GPU nodes that one of KAI's schedulers serves."""
        pools = {shard.pool for shard in self.shards} or {""}
        return tuple(node for node in self.gpu_nodes if node.labels.get(self.pool_label, "") in pools)

    @cached_property
    def pending_of_kai(self) -> tuple[Pod, ...]:
        """Pods for which KAI looks for a node, and was given time."""
        return tuple(
            pod
            for pod in self.snapshot.pods
            if pod.scheduler == self.scheduler_name and pod.may_be_placed and not pod.ended and not self.is_young(pod)
        )

    @cached_property
    def reservation_pods(self) -> tuple[Pod, ...]:
        """The pods with which KAI holds GPUs."""
        return tuple(
            pod
            for pod in self.snapshot.pods
            if pod.namespace == self.reservation_namespace and pod.labels.get(GPU_GROUP)
        )

    def pods_of(self, workload: Deployment | DaemonSet) -> tuple[Pod, ...]:
        """The pods that a Deployment or DaemonSet selects."""
        selector = workload.selector.items()
        return tuple(
            pod
            for pod in self.snapshot.pods
            if selector and pod.namespace == workload.namespace and selector <= pod.labels.items()
        )

    def events_of(self, kind: str, namespace: str, name: str) -> tuple[str, ...]:
        """What the warnings of an object say, without repetition, the last three."""
        warnings = [f"{event.reason}: {event.message}" for event in self._events.get((kind, namespace, name), ())]
        return tuple(dict.fromkeys(warnings))[-3:]

    @cached_property
    def _events(self) -> Mapping[tuple[str, str, str], list[Event]]:
        by_object: dict[tuple[str, str, str], list[Event]] = {}
        for event in self.events:
            by_object.setdefault((event.kind, event.namespace, event.name), []).append(event)
        return by_object

    def deployment(self, namespace: str, name: str) -> Deployment | None:
        """A Deployment, or None."""
        return next(
            (
                deployment
                for deployment in self.deployments
                if (deployment.namespace, deployment.name) == (namespace, name)
            ),
            None,
        )

    def is_young(self, pod: Pod, settling: timedelta = SETTLING) -> bool:
        """Whether a pod may still become what it should be."""
        return pod.created is not None and self.snapshot.taken - pod.created < settling


def names(objects: Iterable[Named]) -> str:
    """Names in a sentence."""
    return ", ".join(sorted(named.name for named in objects)) or "none"
