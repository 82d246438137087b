"""How the checks' facts are read: lists beside each other, a bounded number at a time, each a page at a time.

What the API server refuses is noted down by the name of what it is, and the rest is read.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cluster.answers import Event, Pod
from cluster.client import Cluster
from cluster.errors import ClusterError
from cluster.prometheus_operator import read_missing_kinds
from cluster.snapshot import read_snapshot
from config.stack import StackSettings
from manifests import every_object, gpu_operator, kai, reservation
from manifests.monitoring.objects import NAME as EXPORTER
from manifests.monitoring.objects import OPERATOR_GROUP
from manifests.objects import Manifest
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
    Shard,
    Source,
    WebhookConfiguration,
)
from operations.doctor.monitoring import Monitoring, Prometheus, Role, RoleBinding

_PARALLEL = 8
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


@dataclass
class _Reader:
    """Asks in a pool, and notes down what is refused.

    Attributes:
        pool: in which requests run.
        unseen: what could not be read so far, and why.
    """

    pool: ThreadPoolExecutor
    unseen: dict[Source, str] = field(default_factory=dict)

    def take(self, source: Source, answer: "Future[T]", otherwise: T) -> T:
        """An answer, or something else where the API server refuses it."""
        try:
            return answer.result()
        except ClusterError as error:
            self.unseen.setdefault(source, str(error).splitlines()[0])
            return otherwise

    def take_lists(self, source: Source, answers: "Iterable[Future[list[T]]]") -> tuple[T, ...]:
        """Lists that belong together."""
        none: list[T] = []
        return tuple(each for answer in answers for each in self.take(source, answer, none))


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
    with ThreadPoolExecutor(_PARALLEL) as pool:
        reader = _Reader(pool)
        ask = pool.submit

        def listed(path: str, kind: type[T]) -> "Future[list[T]]":
            return ask(cluster.objects, path, kind)

        reading = ask(read_snapshot, cluster, namespace)
        deployments = listed("/apis/apps/v1/deployments", Deployment)
        daemon_sets = listed("/apis/apps/v1/daemonsets", DaemonSet)
        classes = listed("/apis/node.k8s.io/v1/runtimeclasses", Named)
        namespaces = listed("/api/v1/namespaces", KaiNamespace)
        configs = listed("/apis/kai.scheduler/v1/configs", KaiConfig)
        shards = listed("/apis/kai.scheduler/v1/schedulingshards", Shard)
        policies = listed("/apis/nvidia.com/v1/clusterpolicies", ClusterPolicy)
        gpu_clusters = listed("/apis/nvidia.com/v1alpha1/gpuclusters", Named)
        mutating = listed(f"{_ADMISSION}/mutatingwebhookconfigurations", WebhookConfiguration)
        validating = listed(f"{_ADMISSION}/validatingwebhookconfigurations", WebhookConfiguration)
        kinds = {f"{version}/{plural}": ask(cluster.has_kind, version, plural) for version, plural in _KINDS}
        served = ask(cluster.mutating_policy_versions)
        monitoring = _Monitoring.ask(cluster, pool, settings) if settings and settings.monitoring.enabled else None
        stack_objects = every_object.objects(settings) if settings else {}
        there = {key(manifest): ask(_is_there, cluster, manifest) for manifest in stack_objects.values()}

        first = Facts(
            snapshot=reading.result(),
            stack=stack,
            settings=settings,
            version=version,
            deployments=reader.take_lists(Source.DEPLOYMENTS, [deployments]),
            daemon_sets=reader.take_lists(Source.DAEMON_SETS, [daemon_sets]),
            runtime_classes=reader.take_lists(Source.RUNTIME_CLASSES, [classes]),
            namespaces=reader.take_lists(Source.NAMESPACES, [namespaces]),
            configs=reader.take_lists(Source.CONFIG, [configs]),
            shards=reader.take_lists(Source.SHARDS, [shards]),
            cluster_policies=reader.take_lists(Source.CLUSTER_POLICIES, [policies]),
            gpu_clusters=reader.take_lists(Source.GPU_CLUSTERS, [gpu_clusters]),
            mutating_webhooks=reader.take_lists(Source.WEBHOOKS, [mutating]),
            validating_webhooks=reader.take_lists(Source.WEBHOOKS, [validating]),
            kinds=frozenset(
                name for name, answer in kinds.items() if reader.take(Source.KINDS, answer, otherwise=True)
            ),
            monitoring=monitoring.take(reader) if monitoring else Monitoring(),
            policy_versions=reader.take(Source.STACK, served, frozenset()),
            planned=len(there),
            missing=frozenset(
                name for name, answer in there.items() if not reader.take(Source.STACK, answer, otherwise=True)
            )
            if settings
            else None,
        )
        return _with_details(cluster, reader, first, namespace)


@dataclass(frozen=True)
class _Monitoring:
    """What is asked for because the stack has metrics."""

    kinds: "Future[tuple[str, ...]]"
    roles: "Future[list[Role]]"
    bindings: "Future[list[RoleBinding]]"
    prometheuses: "Future[list[Prometheus]]"

    @classmethod
    def ask(cls, cluster: Cluster, pool: ThreadPoolExecutor, settings: StackSettings) -> "_Monitoring":
        """Ask; nothing waits for the answers."""
        named = {"fieldSelector": f"metadata.name={EXPORTER}"}
        rights = "/apis/rbac.authorization.k8s.io/v1"
        return cls(
            pool.submit(read_missing_kinds, cluster, settings),
            pool.submit(cluster.objects, f"{rights}/clusterroles", Role, params=named),
            pool.submit(cluster.objects, f"{rights}/clusterrolebindings", RoleBinding, params=named),
            pool.submit(cluster.objects, f"/apis/{OPERATOR_GROUP}/prometheuses", Prometheus),
        )

    def take(self, reader: _Reader) -> Monitoring:
        """The answers."""
        return Monitoring(
            reader.take(Source.MONITORING, self.kinds, ()),
            reader.take_lists(Source.MONITORING, [self.roles]),
            reader.take_lists(Source.MONITORING, [self.bindings]),
            reader.take_lists(Source.MONITORING, [self.prometheuses]),
        )


def _with_details(cluster: Cluster, reader: _Reader, facts: Facts, namespace: str) -> Facts:
    """What is asked for because of what was read."""
    ask = reader.pool.submit
    places = {hook.namespace for each in _configurations(facts) for hook in each.webhooks if hook.service}
    slices = [
        ask(cluster.objects, f"/apis/discovery.k8s.io/v1/namespaces/{place}/endpointslices", EndpointSlice)
        for place in sorted(places)
    ]
    events = [
        ask(cluster.objects, f"/api/v1/namespaces/{place}/events", Event, params={"fieldSelector": "type=Warning"})
        for place in _event_namespaces(facts, namespace)
    ]
    releases = {release: ask(cluster.helm_revisions, *release) for release in _releases(facts)}
    logs = {pod.name: ask(_log, cluster, pod) for pod in _silent(facts)[:_LOGS]}
    profiles = [
        ask(
            cluster.objects,
            f"/api/v1/namespaces/{facts.operator_namespace}/configmaps",
            ConfigMap,
            params={"fieldSelector": f"metadata.name={policy.profiles}"},
        )
        for policy in facts.cluster_policies
        if policy.profiles
    ]
    return replace(
        facts,
        endpoint_slices=reader.take_lists(Source.ENDPOINTS, slices),
        events=reader.take_lists(Source.EVENTS, events),
        releases=tuple(
            Release(namespace, name, reader.take_lists(Source.RELEASES, [answer]))
            for (namespace, name), answer in releases.items()
        ),
        logs={name: reader.take(Source.EVENTS, answer, "") for name, answer in logs.items()},
        profiles=_profiles(facts, reader.take_lists(Source.PROFILES, profiles)),
        unseen=dict(reader.unseen) | {Source(each.what): each.why for each in facts.snapshot.unseen},
    )


def _configurations(facts: Facts) -> tuple[WebhookConfiguration, ...]:
    return (*facts.mutating_webhooks, *facts.validating_webhooks)


def _event_namespaces(facts: Facts, namespace: str) -> list[str]:
    """The one that is asked about, ours, and those of pods that were bound and do not start."""
    ours = [*([namespace] if namespace else []), facts.kai_namespace, facts.operator_namespace, reservation.NAMESPACE]
    waiting = [pod.namespace for pod in facts.snapshot.pods if pod.node and pod.phase == "Pending"]
    return list(dict.fromkeys([*ours, *sorted(waiting)]))[:_EVENT_NAMESPACES]


def _releases(facts: Facts) -> list[tuple[str, str]]:
    """The Helm releases of KAI and of the GPU Operator, by the names that their Deployments say, or usual ones."""
    found = []
    for name, place, usual in (
        (KAI_OPERATOR, facts.kai_namespace, kai.RELEASE),
        (GPU_OPERATOR, facts.operator_namespace, gpu_operator.RELEASE),
    ):
        deployment = facts.deployment(place, name)
        said = deployment.annotations.get("meta.helm.sh/release-name") if deployment else None
        found.append((place, said or usual))
    return found


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
    wanted = {policy.profiles for policy in facts.cluster_policies}
    return next((frozenset(each.data) for each in maps if each.name in wanted), None)
