"""How the checks' facts are read: everything at once, then what is asked for because of it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from cluster.access.answers.objects import API_SERVICES, ApiService, HelmRevision
from cluster.access.answers.pods import Event, Pod
from cluster.access.client import Cluster
from cluster.access.lists import Reader, Unseen
from cluster.preflight.prometheus_operator import OURS, read_missing_kinds
from cluster.snapshot import read_snapshot
from config.stack import StackSettings
from manifests import every_object, gpu_operator, kai, reservation
from manifests.monitoring.objects import NAME as EXPORTER
from manifests.monitoring.objects import OPERATOR_GROUP
from manifests.objects import RBAC_GROUP, Manifest
from manifests.ownership import key
from manifests.reservation_index import WRITTEN_BY_KAI
from operations.doctor.facts import (
    GPU_OPERATOR,
    KAI_OPERATOR,
    ClusterPolicy,
    ConfigMap,
    DaemonSet,
    Deployment,
    EndpointSlice,
    Facts,
    KaiConfig,
    KaiNamespace,
    Named,
    Release,
    RuntimeClass,
    Shard,
    Source,
    WebhookConfiguration,
)
from operations.doctor.monitoring import Monitoring, Prometheus, Role, RoleBinding

_LOGS, _LOG_LINES = 10, 20
_EVENT_NAMESPACES = 10
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_KINDS = (
    ("scheduling.run.ai/v2", "queues"),
    ("scheduling.run.ai/v2alpha2", "podgroups"),
    ("scheduling.run.ai/v1alpha2", "bindrequests"),
    ("kai.scheduler/v1", "configs"),
    ("kai.scheduler/v1", "schedulingshards"),
)

T = TypeVar("T")


def read_facts(cluster: Cluster, settings: StackSettings | None, stack: str = "", namespace: str = "") -> Facts:
    """Read everything that checks ask for.

    Args:
        cluster: where.
        settings: what the stack says, or None.
        stack: the stack, as project/name.
        namespace: what is asked about is there: of it, events are read in any case, and pods where no others may be.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    version = cluster.version()
    # Where the API server does not answer, the snapshot says so.
    with Reader(cluster, insists=False) as reader:
        listed = reader.objects
        deployments = listed(Source.DEPLOYMENTS, "/apis/apps/v1/deployments", Deployment)
        daemon_sets = listed(Source.DAEMON_SETS, "/apis/apps/v1/daemonsets", DaemonSet)
        classes = listed(Source.RUNTIME_CLASSES, "/apis/node.k8s.io/v1/runtimeclasses", RuntimeClass)
        namespaces = listed(Source.NAMESPACES, "/api/v1/namespaces", KaiNamespace)
        configs = listed(Source.CONFIG, "/apis/kai.scheduler/v1/configs", KaiConfig)
        shards = listed(Source.SHARDS, "/apis/kai.scheduler/v1/schedulingshards", Shard)
        policies = listed(Source.CLUSTER_POLICIES, "/apis/nvidia.com/v1/clusterpolicies", ClusterPolicy)
        gpu_clusters = listed(Source.GPU_CLUSTERS, "/apis/nvidia.com/v1alpha1/gpuclusters", Named)
        mutating = listed(Source.WEBHOOKS, f"{_ADMISSION}/mutatingwebhookconfigurations", WebhookConfiguration)
        validating = listed(Source.WEBHOOKS, f"{_ADMISSION}/validatingwebhookconfigurations", WebhookConfiguration)
        api_services = listed(Source.API_SERVICES, API_SERVICES, ApiService)
        kinds = {
            f"{version}/{plural}": reader.ask(Source.KINDS, True, cluster.has_kind, version, plural)
            for version, plural in _KINDS
        }
        served = reader.ask(Source.STACK, frozenset[str](), cluster.mutating_policy_versions)
        monitoring = _ask_monitoring(reader, cluster, settings)
        stack_objects = every_object.objects(settings) if settings else {}
        presence = {
            key(manifest): reader.ask(Source.STACK, True, _is_there, cluster, manifest)
            for manifest in stack_objects.values()
        }

        first = Facts(
            snapshot=read_snapshot(cluster, namespace),
            stack=stack,
            settings=settings,
            version=version,
            deployments=deployments(),
            daemon_sets=daemon_sets(),
            runtime_classes=classes(),
            namespaces=namespaces(),
            configs=configs(),
            shards=shards(),
            cluster_policies=policies(),
            gpu_clusters=gpu_clusters(),
            mutating_webhooks=mutating(),
            validating_webhooks=validating(),
            api_services=api_services(),
            kinds=frozenset(name for name, answer in kinds.items() if answer()),
            monitoring=monitoring(),
            policy_versions=served(),
            planned=len(presence),
            missing=frozenset(name for name, answer in presence.items() if not answer()) if settings else None,
        )
        return _with_details(cluster, reader, first, namespace)


def _ask_monitoring(reader: Reader, cluster: Cluster, settings: StackSettings | None) -> Callable[[], Monitoring]:
    """What is asked for where the stack has metrics."""
    if settings is None or not settings.monitoring.enabled:
        return Monitoring
    named = {"fieldSelector": f"metadata.name={EXPORTER}"}
    rights = f"/apis/{RBAC_GROUP}/v1"
    kinds = reader.ask(Source.MONITORING, {}, read_missing_kinds, cluster, settings)
    roles = reader.objects(Source.MONITORING, f"{rights}/clusterroles", Role, params=named)
    bindings = reader.objects(Source.MONITORING, f"{rights}/clusterrolebindings", RoleBinding, params=named)
    prometheuses = reader.objects(Source.MONITORING, f"/apis/{OPERATOR_GROUP}/prometheuses", Prometheus)
    return lambda: Monitoring(kinds().get(OURS, ()), roles(), bindings(), prometheuses())


def _with_details(cluster: Cluster, reader: Reader, facts: Facts, namespace: str) -> Facts:
    """What is asked for because of what was read."""
    places = {
        hook.namespace for configuration in _configurations(facts) for hook in configuration.webhooks if hook.service
    }
    slices = [
        reader.objects(Source.ENDPOINTS, f"/apis/discovery.k8s.io/v1/namespaces/{place}/endpointslices", EndpointSlice)
        for place in sorted(places)
    ]
    warnings = {"fieldSelector": "type=Warning"}
    events = [
        reader.objects(Source.EVENTS, f"/api/v1/namespaces/{place}/events", Event, params=warnings)
        for place in _event_namespaces(facts, namespace)
    ]
    releases = {
        release: reader.ask(Source.RELEASES, list[HelmRevision](), cluster.helm_revisions, *release)
        for release in _releases(facts)
    }
    logs = {pod.name: reader.ask(Source.EVENTS, "", _log, cluster, pod) for pod in _silent(facts)[:_LOGS]}
    profiles = [
        reader.objects(
            Source.PROFILES,
            f"/api/v1/namespaces/{facts.operator_namespace}/configmaps",
            ConfigMap,
            params={"fieldSelector": f"metadata.name={policy.profiles}"},
        )
        for policy in facts.cluster_policies
        if policy.profiles
    ]
    detailed = replace(
        facts,
        endpoint_slices=_all(slices),
        events=_all(events),
        releases=tuple(Release(*release, tuple(answer())) for release, answer in releases.items()),
        logs={name: answer() for name, answer in logs.items()},
        profiles=_profiles(facts, _all(profiles)),
    )
    unseen: dict[Source, Unseen] = {}
    for gap in (*reader.unseen, *facts.snapshot.unseen):
        unseen.setdefault(Source(gap.what), gap)
    return replace(detailed, unseen=unseen)


def _all(answers: Iterable[Callable[[], tuple[T, ...]]]) -> tuple[T, ...]:
    return tuple(item for answer in answers for item in answer())


def _configurations(facts: Facts) -> tuple[WebhookConfiguration, ...]:
    return (*facts.mutating_webhooks, *facts.validating_webhooks)


def _event_namespaces(facts: Facts, namespace: str) -> list[str]:
    """The one that is asked about, ours, and those of pods that were bound and do not start."""
    ours = [*([namespace] if namespace else []), facts.kai_namespace, facts.operator_namespace, reservation.NAMESPACE]
    waiting = [pod.namespace for pod in facts.snapshot.pods if pod.node and pod.phase == "Pending"]
    return list(dict.fromkeys([*ours, *sorted(waiting)]))[:_EVENT_NAMESPACES]


def _releases(facts: Facts) -> list[tuple[str, str]]:
    """The Helm releases of KAI and of the GPU Operator, by the names that their Deployments say, or usual ones."""
    releases = []
    for name, place, usual in (
        (KAI_OPERATOR, facts.kai_namespace, kai.RELEASE),
        (GPU_OPERATOR, facts.operator_namespace, gpu_operator.RELEASE),
    ):
        deployment = facts.deployment(place, name)
        annotated = deployment.annotations.get("meta.helm.sh/release-name") if deployment else None
        releases.append((place, annotated or usual))
    return releases


def _silent(facts: Facts) -> list[Pod]:
    return [
        pod
        for pod in facts.reservation_pods
        if not pod.annotations.get(WRITTEN_BY_KAI) and not pod.deleted and pod.node
    ]


def _log(cluster: Cluster, pod: Pod) -> str:
    """The container's last lines; those of the one before it where it has not said anything."""
    return cluster.log(pod.namespace, pod.name, lines=_LOG_LINES) or cluster.log(
        pod.namespace, pod.name, lines=_LOG_LINES, previous=True
    )


def _is_there(cluster: Cluster, manifest: Manifest) -> bool:
    return cluster.find_object(manifest) is not None


def _profiles(facts: Facts, maps: Iterable[ConfigMap]) -> frozenset[str] | None:
    names = {policy.profiles for policy in facts.cluster_policies}
    return next((frozenset(config_map.data) for config_map in maps if config_map.name in names), None)
