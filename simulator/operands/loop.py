"""Observes the cluster, lets every behaviour decide, carries the decisions out; again and again until stopped."""

import asyncio
import datetime as dt
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
from lightkube import AsyncClient, Client, KubeConfig
from lightkube.generic_resource import create_global_resource
from lightkube.resources.admissionregistration_v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, Node, Pod, Service, ServiceAccount
from lightkube.resources.node_v1 import RuntimeClass
from lightkube.types import PatchType

from simulator import api
from simulator.nodes import SIMULATED
from simulator.operands import device_plugin, gpu_operator, kai, nfd
from simulator.operands.observed import Observed
from simulator.operands.webhooks import Webhooks, serving
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
    annotations,
    labels,
)

PAUSE_SECONDS = 0.2
"""Between two steps: changes come together, and one look sees them all."""
_NOT_FOUND = 404
_CLUSTER_POLICY = create_global_resource("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies")
_NODE_FEATURE_RULE = create_global_resource("nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureRule", "nodefeaturerules")
_KAI_CONFIG = create_global_resource("kai.scheduler", "v1", "Config", "configs")
_SCHEDULING_SHARD = create_global_resource("kai.scheduler", "v1", "SchedulingShard", "schedulingshards")

_RESOURCES: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("v1", "Node"): Node,
        ("v1", "Pod"): Pod,
        ("v1", "Service"): Service,
        ("v1", "ServiceAccount"): ServiceAccount,
        ("apps/v1", "DaemonSet"): DaemonSet,
        ("apps/v1", "Deployment"): Deployment,
        ("node.k8s.io/v1", "RuntimeClass"): RuntimeClass,
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): MutatingWebhookConfiguration,
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): ValidatingWebhookConfiguration,
        ("nvidia.com/v1", "ClusterPolicy"): _CLUSTER_POLICY,
        ("kai.scheduler/v1", "Config"): _KAI_CONFIG,
    }
)
"""What a change may be about."""

_OBSERVED: tuple[Any, ...] = (
    *_RESOURCES.values(),
    Job,
    ConfigMap,
    _NODE_FEATURE_RULE,
    _SCHEDULING_SHARD,
)
"""What behaviours look at."""


def _is_made_by_kai(webhooks: Object) -> bool:
    return kai.MADE_BY_OPERATOR.items() <= labels(webhooks).items()


_COUNTS: Mapping[Any, Callable[[Object], bool]] = MappingProxyType(
    {
        # A real node's kubelet advertises what its own plugins say.
        Node: lambda node: SIMULATED in annotations(node).items(),
        Pod: lambda pod: (
            labels(pod).get("app") == device_plugin.PLUGIN
            or labels(pod).get("app.kubernetes.io/name") == device_plugin.GENERIC_PLUGIN
            or labels(pod).get("batch.kubernetes.io/job-name") in kai.PLAYED_JOBS
        ),
        MutatingWebhookConfiguration: _is_made_by_kai,
        ValidatingWebhookConfiguration: _is_made_by_kai,
    }
)
"""Which objects are of interest, where not all of a kind are."""

Behaviour = Callable[[World], Decision]
BEHAVIOURS: tuple[Behaviour, ...] = (
    nfd.decide,
    gpu_operator.decide,
    device_plugin.decide,
    kai.decide_jobs,
    kai.decide,
)


def run(kubeconfig: Path, *, with_kai: bool = True) -> None:
    """Play the operators until the process is stopped; an API server that does not answer is waited for.

    Args:
        kubeconfig: of the cluster.
        with_kai: whether KAI's operator is emulated too; its hooks are in any case.
    """
    behaviours = tuple(behaviour for behaviour in BEHAVIOURS if with_kai or behaviour is not kai.decide)
    asyncio.run(_run(kubeconfig, behaviours))


async def _run(kubeconfig: Path, behaviours: Sequence[Behaviour]) -> None:
    complained: frozenset[str] = frozenset()
    observed = Observed(_OBSERVED, _COUNTS)
    _log("playing the operators' pods")
    watching = AsyncClient(config=KubeConfig.from_file(kubeconfig), trust_env=False)
    with api.client(kubeconfig) as client, serving() as webhooks:
        async with asyncio.TaskGroup() as watches:
            for kind in _OBSERVED:
                watches.create_task(observed.follow(watching, kind))
            while True:
                await observed.changed.wait()
                observed.changed.clear()
                # In the watches' thread: where two threads meet a type for the first time, msgspec, by which lightkube
                # reads, ends the process with a segmentation fault (0.22.0; no report of it was found upstream).
                complaints = frozenset(step(client, observed, webhooks, behaviours))
                for complaint in sorted(complaints - complained):
                    _log(complaint)
                complained = complaints
                if complaints:
                    observed.changed.set()
                await asyncio.sleep(PAUSE_SECONDS)


def step(client: Client, observed: Observed, webhooks: Webhooks, behaviours: Sequence[Behaviour]) -> Iterator[str]:
    """Decide and act once; yields what is wrong. One behaviour's failure does not hold up the others.

    Nothing is decided while a kind is not read: what is not seen would be taken for something that is not there.
    """
    if observed.unread:
        yield from (f"{kind.__name__} can't be read: {why}" for kind, why in observed.unread.items() if why)
        return
    world = _world(observed, Endpoint(webhooks.url, webhooks.authority))
    webhooks.answering = kai.answering(world)
    for behaviour in behaviours:
        decision = behaviour(world)
        yield from decision.complaints
        try:
            for change in decision.changes:
                _carry_out(client, change)
        except httpx2.HTTPError as error:
            yield f"{behaviour.__module__.rpartition('.')[2]}: {error}"


def _world(observed: Observed, webhooks: Endpoint) -> World:
    return World(
        now=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        nodes=observed.all(Node),
        pods=observed.all(Pod),
        deployments=observed.all(Deployment),
        daemon_sets=observed.all(DaemonSet),
        jobs=observed.all(Job),
        services=observed.all(Service),
        service_accounts=observed.all(ServiceAccount),
        config_maps=observed.all(ConfigMap),
        runtime_classes=observed.all(RuntimeClass),
        cluster_policies=observed.all(_CLUSTER_POLICY),
        node_feature_rules=observed.all(_NODE_FEATURE_RULE),
        kai_configs=observed.all(_KAI_CONFIG),
        scheduling_shards=observed.all(_SCHEDULING_SHARD),
        webhook_configurations=(
            *observed.all(MutatingWebhookConfiguration),
            *observed.all(ValidatingWebhookConfiguration),
        ),
        webhooks=webhooks,
    )


def _carry_out(client: Client, change: Change) -> None:
    untyped: Any = client  # its overloads ask for a class known when this is written
    match change:
        case Apply(manifest, manager):
            metadata = manifest["metadata"]
            ref = Ref(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace"))
            untyped.patch(
                _resource(ref),
                ref.name,
                manifest,
                patch_type=PatchType.APPLY,
                field_manager=manager,
                force=True,
                **_place(ref),
            )
            _log(f"applied {_show(ref)}")
        case Merge(ref, patch, status):
            resource = _resource(ref).Status if status else _resource(ref)
            untyped.patch(resource, ref.name, patch, patch_type=PatchType.MERGE, **_place(ref))
            _log(f"changed {_show(ref)}: {patch}")
        case Delete(ref):
            try:
                untyped.delete(_resource(ref), ref.name, **_place(ref))
            except httpx2.HTTPStatusError as error:
                if error.response.status_code != _NOT_FOUND:
                    raise
            _log(f"deleted {_show(ref)}")


def _resource(ref: Ref) -> Any:  # noqa: ANN401 (lightkube's classes have no common base with Status)
    return _RESOURCES[ref.api_version, ref.kind]


def _place(ref: Ref) -> dict[str, str]:
    return {"namespace": ref.namespace} if ref.namespace else {}


def _show(ref: Ref) -> str:
    return f"{ref.kind} {f'{ref.namespace}/' if ref.namespace else ''}{ref.name}"


def _log(line: str) -> None:
    stamp = dt.datetime.now(dt.UTC).strftime("%H:%M:%S.%f")[:-3]
    print(stamp, line, file=sys.stdout, flush=True)  # noqa: T201 (this process's output is its log)
