"""Observes the cluster, lets every behaviour decide, carries the decisions out; again and again until stopped."""

import asyncio
import datetime as dt
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
from lightkube import AsyncClient, Client, KubeConfig
from lightkube.core.resource import NamespacedResource
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
    at,
    find,
)

PAUSE_SECONDS = 0.2
"""Between two steps: changes come together, and one look sees them all."""
LOOK_SECONDS = 30.0
"""At the latest there is a step after this, should a watch have gone silent."""
AGAIN_SECONDS = 1.0
"""Until a watch that ended begins anew, as one of a kind that the cluster does not know yet."""

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
    changed = asyncio.Event()
    _log("playing the operators' pods")
    watching = AsyncClient(config=KubeConfig.from_file(kubeconfig), trust_env=False)
    with api.client(kubeconfig) as client, serving() as webhooks:
        async with asyncio.TaskGroup() as watches:
            for resource in _OBSERVED:
                watches.create_task(_follow(watching, resource, changed))
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK_SECONDS)
                changed.clear()
                # In the watches' thread: where two threads meet a type for the first time, msgspec, by which lightkube
                # reads, ends the process with a segmentation fault (0.22.0; no report of it was found upstream).
                complaints = frozenset(step(client, webhooks, behaviours))
                for complaint in sorted(complaints - complained):
                    _log(complaint)
                complained = complaints
                if complaints:
                    changed.set()
                await asyncio.sleep(PAUSE_SECONDS)


async def _follow(client: AsyncClient, resource: Any, changed: asyncio.Event) -> None:  # noqa: ANN401 (lightkube's)
    """Say whenever an object of a kind may have changed.

    An idle cluster is asked for little so: to ask for the store's revision five times a second, as it was done before,
    takes 4 % of a core.
    """
    untyped: Any = client  # its overloads ask for a class known when this is written
    while True:
        try:
            listed = untyped.list(resource, chunk_size=1, **_everywhere(resource))
            async for _ in listed:
                break
            changed.set()
            async for _ in untyped.watch(resource, resource_version=listed.resourceVersion, **_everywhere(resource)):
                changed.set()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next watch begins with a look
            if not _is_unknown(error):
                # Nobody knows what has changed since.
                changed.set()
                if not isinstance(error, httpx2.HTTPError):
                    _log(f"the watch of {resource.__name__} begins anew: {error!r}")
        await asyncio.sleep(AGAIN_SECONDS)


def step(client: Client, webhooks: Webhooks, behaviours: Sequence[Behaviour] = BEHAVIOURS) -> Iterator[str]:
    """Observe, decide and act once; yields what is wrong. One behaviour's failure does not hold up the others."""
    try:
        world = observe(client, Endpoint(webhooks.url, webhooks.authority))
    except httpx2.HTTPError as error:
        yield f"the cluster can't be observed: {error}"
        return
    webhooks.answering = kai.answering(world)
    for behaviour in behaviours:
        decision = behaviour(world)
        yield from decision.complaints
        try:
            for change in decision.changes:
                _carry_out(client, change)
        except httpx2.HTTPError as error:
            yield f"{behaviour.__module__.rpartition('.')[2]}: {error}"


def observe(client: Client, webhooks: Endpoint) -> World:
    """Everything that behaviours look at.

    Args:
        client: the cluster.
        webhooks: where this process serves KAI's.

    Raises:
        httpx2.HTTPError: the API server refuses (`ApiError` is one) or does not answer.
    """
    policies = _list(client, _CLUSTER_POLICY)
    plugin_config = at(find(policies, "cluster-policy"), "spec", "devicePlugin", "config", "name")
    config_map_names = {"kai-config-manifest", *([plugin_config] if plugin_config else [])}
    return World(
        now=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        # A real node's kubelet advertises what its own plugins say.
        nodes=tuple(node for node in _list(client, Node) if SIMULATED in annotations(node).items()),
        pods=(
            *_list(client, Pod, labels={"app": device_plugin.PLUGIN}),
            *_list(client, Pod, labels={"app.kubernetes.io/name": device_plugin.GENERIC_PLUGIN}),
            *_list(client, Pod, labels={"batch.kubernetes.io/job-name": kai.PLAYED_JOBS}),
        ),
        deployments=_list(client, Deployment),
        daemon_sets=_list(client, DaemonSet),
        jobs=_list(client, Job),
        services=_list(client, Service),
        service_accounts=_list(client, ServiceAccount),
        config_maps=tuple(
            config_map
            for name in config_map_names
            for config_map in _list(client, ConfigMap, fields={"metadata.name": name})
        ),
        runtime_classes=_list(client, RuntimeClass),
        cluster_policies=policies,
        node_feature_rules=_list(client, _NODE_FEATURE_RULE),
        kai_configs=_list(client, _KAI_CONFIG),
        scheduling_shards=_list(client, _SCHEDULING_SHARD),
        webhook_configurations=(
            *_list(client, MutatingWebhookConfiguration, labels=kai.MADE_BY_OPERATOR),
            *_list(client, ValidatingWebhookConfiguration, labels=kai.MADE_BY_OPERATOR),
        ),
        webhooks=webhooks,
    )


def _list(client: Client, resource: Any, **selectors: Any) -> tuple[Object, ...]:  # noqa: ANN401 (lightkube's classes)
    """All objects of a kind in all namespaces, as JSON with its kind; none where the cluster does not know the kind."""
    info = resource._api_info.resource  # noqa: SLF001 (list answers leave kind and apiVersion of items out)
    identity = {"apiVersion": f"{info.group}/{info.version}".lstrip("/"), "kind": info.kind}
    untyped: Any = client  # its overloads ask for a class known when this is written
    try:
        found = untyped.list(resource, **_everywhere(resource), **selectors)
        return tuple({**item.to_dict(), **identity} for item in found)
    except httpx2.HTTPError as error:
        if _is_unknown(error):
            return ()
        raise


def _everywhere(resource: type) -> dict[str, str]:
    return {"namespace": "*"} if issubclass(resource, NamespacedResource) else {}


def _is_unknown(error: Exception) -> bool:
    """Whether the cluster does not know the kind. It says so in plain text, of which lightkube makes no ApiError.

    An error that a watch is told, such as that it is too old, is one without a response (lightkube 1.0).
    """
    return getattr(getattr(error, "response", None), "status_code", None) == _NOT_FOUND


def _carry_out(client: Client, change: Change) -> None:
    untyped: Any = client  # as in _list
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
