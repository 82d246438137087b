"""KAI: the chart's two hook Jobs that have an effect, and the operator that Config `kai-config` steers."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from simulator.operands.world import (
    Apply,
    Change,
    Decision,
    Delete,
    Endpoint,
    Merge,
    Object,
    Ref,
    World,
    at,
    find,
    has_condition,
    keep,
    labels,
    owner_reference,
    terminating,
)

CONFIG = "kai-config"
DEPLOYER_JOB = "kai-config-deployer"
CLEANUP_JOB = "post-delete-cleanup"
PLAYED_JOBS = (DEPLOYER_JOB, CLEANUP_JOB)
"""Jobs whose pods this module ends; simulator/stages/pod-completed.yaml leaves them out."""

_CONFIG_API = "kai.scheduler/v1"
_MANAGED_BY = "app.kubernetes.io/managed-by"
_OPERATOR = "kai-operator"
MADE_BY_OPERATOR = {_MANAGED_BY: _OPERATOR}
"""The label of what the operator makes."""
_SCHEDULER = "scheduler"
"""The service account of every shard's scheduler."""
_HTTP_METRICS = ("http-metrics", 8080, 8080)
_CONTROLLER_PORTS = (("webhook", 443, 9443), ("metrics", 8080, 8080))
_NOT_THESE_NAMESPACES = ("kube-system",)


@dataclass(frozen=True)
class Webhook:
    """One webhook: of the configuration `configuration`, for writes of `resources`.

    Attributes:
        kind: of the configuration.
        configuration: its name.
        name: the webhook's own.
        path: where the service serves it.
        group: the API group of what it judges, with `version`.
        version: that group's.
        resource: what it judges.
        scope: whether that has a namespace.
        pods_of_kai: only pods that name KAI as their scheduler, outside of KAI's namespace and kube-system.
    """

    kind: str
    configuration: str
    name: str
    path: str
    group: str
    version: str
    resource: str
    scope: str
    pods_of_kai: bool = False


@dataclass(frozen=True)
class Service:
    """One Deployment, with a service account of its name and, where it has ports, a Service.

    Attributes:
        spec: its key in the Config.
        name: of all its objects.
        default: what a missing `service.enabled` means in the Config.
        ports: of its Service: name, port, target port.
        webhooks: what it serves.
    """

    spec: str
    name: str
    default: bool = True
    ports: tuple[tuple[str, int, int], ...] = ()
    webhooks: tuple[Webhook, ...] = ()


_MUTATING, _VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"

SERVICES = (
    Service("binder", "binder", ports=(_HTTP_METRICS,)),
    Service("podGrouper", "pod-grouper"),
    Service(
        "podGroupController",
        "podgroup-controller",
        ports=_CONTROLLER_PORTS,
        webhooks=(
            Webhook(
                _VALIDATING,
                "kai-podgroup-validation-v2alpha2",
                "podgroup-validation.kai.scheduler",
                "validate-scheduling-run-ai-v2alpha2-podgroup",
                "scheduling.run.ai",
                "v2alpha2",
                "podgroups",
                "Namespaced",
            ),
        ),
    ),
    Service(
        "queueController",
        "queue-controller",
        ports=_CONTROLLER_PORTS,
        webhooks=(
            Webhook(
                _VALIDATING,
                "kai-queue-validation-v2",
                "queue-validation.kai.scheduler",
                "validate-scheduling-run-ai-v2-queue",
                "scheduling.run.ai",
                "v2",
                "queues",
                "Cluster",
            ),
        ),
    ),
    Service(
        "admission",
        "admission",
        ports=(("webhook", 443, 9443), _HTTP_METRICS),
        webhooks=(
            Webhook(
                _MUTATING,
                "mutating-kai-admission",
                "admission.{namespace}.svc",
                "mutate--v1-pod",
                "",
                "v1",
                "pods",
                "Namespaced",
                pods_of_kai=True,
            ),
            Webhook(
                _VALIDATING,
                "validating-kai-admission",
                "admission.{namespace}.svc",
                "validate--v1-pod",
                "",
                "v1",
                "pods",
                "Namespaced",
                pods_of_kai=True,
            ),
        ),
    ),
    Service("nodeScaleAdjuster", "node-scale-adjuster", default=False),
)
"""Names, ports and webhooks are those of pkg/operator/operands, v0.17.0. The webhook for topologies is left out: no
stack writes any."""


def decide_jobs(world: World) -> Decision:
    """What the hook Jobs do: apply the Config of the release, or clean up after it; then their pods succeed."""
    changes: list[Change] = []
    complaints: list[str] = []
    for job in world.jobs:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        pods = tuple(_running_pods(job, world.pods))
        if name not in PLAYED_JOBS or not pods:
            continue
        if name == DEPLOYER_JOB:
            manifest = at(find(world.config_maps, "kai-config-manifest", namespace), "data", "kai-config.yaml")
            if manifest is None:
                complaints.append(f"Job {namespace}/{name} waits: there is no ConfigMap kai-config-manifest")
                continue
            changes.append(Apply(yaml.safe_load(manifest), manager=DEPLOYER_JOB))
        else:
            changes += _clean_up(job, namespace, world)
        changes += map(_succeed, pods)
    return Decision(tuple(changes), tuple(complaints))


def decide(world: World) -> Decision:
    """One reconciliation of the operator; nothing happens without it or without the Config."""
    config = find(world.kai_configs, CONFIG)
    operator = find(world.deployments, _OPERATOR)
    if config is None or terminating(config) or operator is None or not has_condition(operator, "Available"):
        return Decision()
    namespace = at(config, "spec", "namespace") or operator["metadata"]["namespace"]
    deployments = {manifest["metadata"]["name"]: manifest for manifest in _deployments(config, namespace, world)}
    changes: list[Change] = []
    # A pod is refused until its service account is there.
    for service_account in _accounts(config, namespace):
        changes += keep(service_account, world.service_accounts)
    for service in _services(config, namespace, world):
        changes += keep(service, world.services)
    changes += _webhooks(config, namespace, world)
    for manifest in deployments.values():
        changes += keep(manifest, world.deployments)
    if (account := _reservation_account(config)) is not None:
        changes += keep(account, world.service_accounts)
    for existing in world.deployments:
        ours = labels(existing).get(_MANAGED_BY) == _OPERATOR and existing["metadata"]["namespace"] == namespace
        if ours and existing["metadata"]["name"] not in deployments and not terminating(existing):
            changes.append(Delete(Ref("apps/v1", "Deployment", existing["metadata"]["name"], namespace)))
    available = all(
        (deployment := find(world.deployments, name, namespace)) is not None and has_condition(deployment, "Available")
        for name in deployments
    )
    return Decision((*changes, *_conditions(config, available=available, now=world.now)))


def answering(world: World) -> frozenset[str]:
    """The services whose webhooks answer: those with an available Deployment."""
    return frozenset(
        deployment["metadata"]["name"]
        for deployment in world.deployments
        if MADE_BY_OPERATOR.items() <= labels(deployment).items()
        and has_condition(deployment, "Available")
        and at(deployment, "status", "availableReplicas")
    )


def _running_pods(job: Object, pods: tuple[Object, ...]) -> Iterator[Object]:
    for pod in pods:
        owned = any(owner["uid"] == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or ())
        if owned and at(pod, "status", "phase") == "Running":
            yield pod


def _succeed(pod: Object) -> Merge:
    metadata = pod["metadata"]
    return Merge(
        Ref("v1", "Pod", metadata["name"], metadata["namespace"]), {"status": {"phase": "Succeeded"}}, status=True
    )


def _clean_up(job: Object, namespace: str, world: World) -> Iterator[Delete]:
    for deployment in world.deployments:
        if labels(deployment).get(_MANAGED_BY) == _OPERATOR and deployment["metadata"]["namespace"] == namespace:
            yield Delete(Ref("apps/v1", "Deployment", deployment["metadata"]["name"], namespace))
    # With nobody behind it, each would block what it is about.
    for configuration in world.webhook_configurations:
        yield Delete(_webhook_ref(configuration))
    # The chart leaves the Config out of the Job's script where it does not own it (kaiConfigDeployer.enabled=false).
    if CONFIG in str(at(job, "spec", "template", "spec", "containers")):
        yield Delete(Ref(_CONFIG_API, "Config", CONFIG))


def _enabled(config: Object) -> Iterator[Service]:
    for service in SERVICES:
        enabled = at(_section(config, service.spec), "service", "enabled")
        if service.default if enabled is None else enabled:
            yield service


def _schedulers(config: Object, world: World) -> Iterator[str]:
    """One per shard, by the name of its Deployment and Service."""
    if at(_section(config, "scheduler"), "service", "enabled") is not False:
        for shard in world.scheduling_shards:
            yield f"{_scheduler_name(config)}-{shard['metadata']['name']}"


def _scheduler_name(config: Object) -> str:
    return str(at(config, "spec", "global", "schedulerName") or "kai-scheduler")


def _deployments(config: Object, namespace: str, world: World) -> Iterator[Object]:
    for service in _enabled(config):
        yield _deployment(service.name, _section(config, service.spec), config, namespace, account=service.name)
    for name in _schedulers(config, world):
        yield _deployment(name, _section(config, "scheduler"), config, namespace, account=_SCHEDULER)


def _accounts(config: Object, namespace: str) -> Iterator[Object]:
    for name in (*(service.name for service in _enabled(config)), _SCHEDULER):
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(name, config, namespace)}


def _services(config: Object, namespace: str, world: World) -> Iterator[Object]:
    for service in _enabled(config):
        if service.ports:
            yield _service(service.name, service.ports, config, namespace)
    for name in _schedulers(config, world):
        headless = _service(name, (_HTTP_METRICS,), config, namespace)
        yield {**headless, "spec": {**headless["spec"], "clusterIP": "None"}}


def _service(name: str, ports: tuple[tuple[str, int, int], ...], config: Object, namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, config, namespace),
        "spec": {
            "selector": {"app": name},
            "ports": [
                {"name": port, "port": number, "targetPort": target, "protocol": "TCP"}
                for port, number, target in ports
            ],
        },
    }


def _metadata(name: str, config: Object, namespace: str | None = None) -> dict[str, Any]:
    place = {} if namespace is None else {"namespace": namespace}
    return {
        "name": name,
        **place,
        "labels": {"app": name, **MADE_BY_OPERATOR},
        "ownerReferences": [owner_reference(config)],
    }


def _webhooks(config: Object, namespace: str, world: World) -> Iterator[Change]:
    """The configurations of services that are enabled, at the address of this process; none where it serves none."""
    configurations: dict[tuple[str, str], Object] = {}
    if world.webhooks is not None:
        for service in _enabled(config):
            for webhook in service.webhooks:
                configuration = _configuration(service, webhook, config, namespace, world.webhooks)
                configurations[webhook.kind, webhook.configuration] = configuration
    for (kind, _), configuration in configurations.items():
        yield from keep(
            configuration, (existing for existing in world.webhook_configurations if existing["kind"] == kind)
        )
    for existing in world.webhook_configurations:
        if (existing["kind"], existing["metadata"]["name"]) not in configurations and not terminating(existing):
            yield Delete(_webhook_ref(existing))


def _webhook_ref(configuration: Object) -> Ref:
    return Ref(configuration["apiVersion"], configuration["kind"], configuration["metadata"]["name"])


def _configuration(service: Service, webhook: Webhook, config: Object, namespace: str, served: Endpoint) -> Object:
    entry: dict[str, Any] = {
        "name": webhook.name.format(namespace=namespace),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": f"{served.url}/{service.name}/{webhook.path}",
            "caBundle": base64.b64encode(served.authority.encode()).decode(),
        },
        "rules": [
            {
                "operations": ["CREATE"] if webhook.kind == _MUTATING else ["CREATE", "UPDATE"],
                "apiGroups": [webhook.group],
                "apiVersions": [webhook.version],
                "resources": [webhook.resource],
                "scope": webhook.scope,
            }
        ],
    }
    if webhook.pods_of_kai:
        named = f"object.spec.schedulerName == '{_scheduler_name(config)}'"
        entry["matchConditions"] = [{"name": "scheduler-name-match", "expression": named}]
        others = {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": [*_NOT_THESE_NAMESPACES, namespace],
        }
        entry["namespaceSelector"] = {"matchExpressions": [others]}
    if webhook.kind == _MUTATING:
        entry["reinvocationPolicy"] = "IfNeeded"
    metadata = _metadata(webhook.configuration, config)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": webhook.kind,
        "metadata": {**metadata, "labels": {"app": service.name, **MADE_BY_OPERATOR}},
        "webhooks": [entry],
    }


def _reservation_account(config: Object) -> Object | None:
    """The service account of reservation pods, with the pull secrets of the Config."""
    reservation: Mapping[str, Any] = at(config, "spec", "binder", "resourceReservation") or {}
    name, namespace = reservation.get("serviceAccountName"), reservation.get("namespace")
    if name is None or namespace is None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner_reference(config)]},
        "imagePullSecrets": [
            {"name": secret} for secret in _section(config, "global").get("additionalImagePullSecrets") or ()
        ],
    }


def _section(config: Object, name: str) -> Mapping[str, Any]:
    return at(config, "spec", name) or {}


def _deployment(name: str, spec: Mapping[str, Any], config: Object, namespace: str, *, account: str) -> Object:
    common = _section(config, "global")
    image: Mapping[str, Any] = at(spec, "service", "image") or {}
    path = "/".join(part for part in (image.get("repository"), image.get("name") or name) if part)
    selector = {"app": name}
    pod = {
        "serviceAccountName": account,
        "nodeSelector": common.get("nodeSelector") or {},
        "tolerations": common.get("tolerations") or [],
        "containers": [
            {
                "name": name,
                "image": f"{path}:{image.get('tag') or 'latest'}",
                "imagePullPolicy": image.get("pullPolicy") or "IfNotPresent",
                "resources": at(spec, "service", "resources") or {},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(name, config, namespace),
        "spec": {
            "replicas": spec.get("replicas") or common.get("replicaCount") or 1,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": pod},
        },
    }


def _conditions(config: Object, *, available: bool, now: str) -> tuple[Merge, ...]:
    generation = config["metadata"].get("generation", 0)
    status = "True" if available else "False"
    statuses = {"Deployed": "True", "Available": status, "Ready": status}
    existing = {
        entry["type"]: (entry["status"], entry.get("observedGeneration"))
        for entry in at(config, "status", "conditions") or ()
    }
    if existing == {kind: (value, generation) for kind, value in statuses.items()}:
        return ()
    conditions = [
        {
            "type": kind,
            "status": value,
            "reason": kind.lower(),
            "message": "",
            "observedGeneration": generation,
            "lastTransitionTime": now,
        }
        for kind, value in statuses.items()
    ]
    return (Merge(Ref(_CONFIG_API, "Config", CONFIG), {"status": {"conditions": conditions}}, status=True),)
