"""KAI: the chart's two hook Jobs that have an effect, and the operator that Config `kai-config` steers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from simulator.operands.world import (
    Apply,
    Change,
    Decision,
    Delete,
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


@dataclass(frozen=True)
class Service:
    """One Deployment: `spec` is its key in the Config, `default` what a missing `service.enabled` means there."""

    spec: str
    name: str
    default: bool = True


SERVICES = (
    Service("binder", "binder"),
    Service("podGrouper", "pod-grouper"),
    Service("podGroupController", "podgroup-controller"),
    Service("queueController", "queue-controller"),
    Service("admission", "admission"),
    Service("nodeScaleAdjuster", "node-scale-adjuster", default=False),
)


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
    wanted = {manifest["metadata"]["name"]: manifest for manifest in _deployments(config, namespace, world)}
    changes: list[Change] = []
    for manifest in wanted.values():
        changes += keep(manifest, world.deployments)
    if (account := _reservation_account(config)) is not None:
        changes += keep(account, world.service_accounts)
    for existing in world.deployments:
        ours = labels(existing).get(_MANAGED_BY) == _OPERATOR and existing["metadata"]["namespace"] == namespace
        if ours and existing["metadata"]["name"] not in wanted and not terminating(existing):
            changes.append(Delete(Ref("apps/v1", "Deployment", existing["metadata"]["name"], namespace)))
    available = all(
        (there := find(world.deployments, name, namespace)) is not None and has_condition(there, "Available")
        for name in wanted
    )
    return Decision((*changes, *_conditions(config, available=available, now=world.now)))


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
    # The chart leaves the Config out of the Job's script where it does not own it (kaiConfigDeployer.enabled=false).
    if CONFIG in str(at(job, "spec", "template", "spec", "containers")):
        yield Delete(Ref(_CONFIG_API, "Config", CONFIG))


def _deployments(config: Object, namespace: str, world: World) -> Iterator[Object]:
    for service in SERVICES:
        spec = _section(config, service.spec)
        enabled = at(spec, "service", "enabled")
        if service.default if enabled is None else enabled:
            yield _deployment(service.name, spec, config, namespace)
    scheduler = _section(config, "scheduler")
    if at(scheduler, "service", "enabled") is not False:
        prefix = at(config, "spec", "global", "schedulerName") or "kai-scheduler"
        for shard in world.scheduling_shards:
            yield _deployment(f"{prefix}-{shard['metadata']['name']}", scheduler, config, namespace)


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


def _deployment(name: str, spec: Mapping[str, Any], config: Object, namespace: str) -> Object:
    common = _section(config, "global")
    image: Mapping[str, Any] = at(spec, "service", "image") or {}
    path = "/".join(part for part in (image.get("repository"), image.get("name") or name) if part)
    selector = {"app": name}
    pod = {
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
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**selector, _MANAGED_BY: _OPERATOR},
            "ownerReferences": [owner_reference(config)],
        },
        "spec": {
            "replicas": spec.get("replicas") or common.get("replicaCount") or 1,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": pod},
        },
    }


def _conditions(config: Object, *, available: bool, now: str) -> tuple[Merge, ...]:
    generation = config["metadata"].get("generation", 0)
    status = "True" if available else "False"
    wanted = {"Deployed": "True", "Available": status, "Ready": status}
    existing = {
        entry["type"]: (entry["status"], entry.get("observedGeneration"))
        for entry in at(config, "status", "conditions") or ()
    }
    if existing == {kind: (value, generation) for kind, value in wanted.items()}:
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
        for kind, value in wanted.items()
    ]
    return (Merge(Ref(_CONFIG_API, "Config", CONFIG), {"status": {"conditions": conditions}}, status=True),)
