"""Device plugins: NVIDIA's, and squat's generic one where it is configured for `nvidia.com/gpu`.

Each advertises its devices on a node while its pod runs there.
"""

import json

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpu_sharing.quantities import quantity
from simulator.nodes import GPUS_ANNOTATION
from simulator.operands.world import (
    Decision,
    Merge,
    Object,
    Ref,
    World,
    annotations,
    at,
    find,
    has_condition,
    labels,
    terminating,
)

RESOURCE = "nvidia.com/gpu"
PLUGIN = "nvidia-device-plugin-daemonset"
GENERIC_PLUGIN = "gvirtus-device-plugin"
"""The name label of squat/generic-device-plugin's pods in a stack with remote GPUs."""
PROFILE_LABEL = "nvidia.com/device-plugin.config"
"""Which key of the ConfigMap a node uses."""


class _Model(BaseModel):
    # The file has more (flags, resources) that changes nothing here.
    model_config = ConfigDict(extra="ignore", frozen=True)


class _SharedResource(_Model):
    name: str
    replicas: int = Field(ge=2)


class _TimeSlicing(_Model):
    rename_by_default: bool = Field(default=False, alias="renameByDefault")
    resources: tuple[_SharedResource, ...] = ()


class _Sharing(_Model):
    time_slicing: _TimeSlicing = Field(default=_TimeSlicing(), alias="timeSlicing")


class _PluginConfig(_Model):
    version: str = Field(pattern="^v1$")
    sharing: _Sharing = _Sharing()


class PluginFailure(Exception):  # noqa: N818 (the simulated plugin fails, not this program)
    """The plugin on a node would not start; the text is what its log would say."""


def decide(world: World) -> Decision:
    """Make every node's capacity what its plugin advertises; a plugin that fails advertises nothing."""
    changes: list[Merge] = []
    complaints: list[str] = []
    for node in world.nodes:
        name = node["metadata"]["name"]
        pod = next((pod for pod in world.pods if _is_plugin_on(pod, name)), None)
        generic = next((pod for pod in world.pods if _is_generic_plugin_on(pod, name)), None)
        advertised = 0 if generic is None else _configured(generic)
        if pod is not None:
            try:
                advertised = _physical(node) * replicas(node, pod["metadata"]["namespace"], world)
            except PluginFailure as failure:
                complaints.append(f"the device plugin on {name} fails: {failure}")
        if advertised != quantity(at(node, "status", "allocatable", RESOURCE) or 0):
            devices = {RESOURCE: str(advertised)}
            status = {"status": {"capacity": devices, "allocatable": devices}}
            changes.append(Merge(Ref("v1", "Node", name), status, status=True))
    return Decision(tuple(changes), tuple(complaints))


def replicas(node: Object, namespace: str, world: World) -> int:
    """How many times the plugin on `node` advertises each GPU.

    Raises:
        PluginFailure: its configuration is missing or wrong.
    """
    policy = find(world.cluster_policies, "cluster-policy")
    config_map_name = at(policy, "spec", "devicePlugin", "config", "name")
    profile = labels(node).get(PROFILE_LABEL) or at(policy, "spec", "devicePlugin", "config", "default")
    if not config_map_name or not profile:
        return 1
    config_map = find(world.config_maps, config_map_name, namespace)
    if config_map is None:
        raise PluginFailure(f"ConfigMap {namespace}/{config_map_name} does not exist")
    text = at(config_map, "data", profile)
    if text is None:
        raise PluginFailure(f"specified config {profile} does not exist in ConfigMap {namespace}/{config_map_name}")
    try:
        config = _PluginConfig.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as error:
        raise PluginFailure(f"config {profile} can't be read: {error}") from error
    slicing = config.sharing.time_slicing
    if slicing.rename_by_default:
        raise PluginFailure(f"config {profile} sets renameByDefault, which the simulator does not know")
    return next((resource.replicas for resource in slicing.resources if resource.name == RESOURCE), 1)


def _is_plugin_on(pod: Object, node: str) -> bool:
    return labels(pod).get("app") == PLUGIN and _runs_on(pod, node)


def _is_generic_plugin_on(pod: Object, node: str) -> bool:
    return labels(pod).get("app.kubernetes.io/name") == GENERIC_PLUGIN and _runs_on(pod, node)


def _runs_on(pod: Object, node: str) -> bool:
    return at(pod, "spec", "nodeName") == node and has_condition(pod, "Ready") and not terminating(pod)


def _configured(pod: Object) -> int:
    """How many `nvidia.com/gpu` the generic plugin's arguments say: groups' counts, each path being there."""
    arguments = at(pod, "spec", "containers")[0].get("args") or []
    flags = dict(zip(arguments[::2], arguments[1::2], strict=False))
    device = json.loads(flags.get("--device", "{}"))
    if f"{flags.get('--domain')}/{device.get('name')}" != RESOURCE:
        return 0
    return sum(int(group.get("count", 1)) for group in device.get("groups", []))


def _physical(node: Object) -> int:
    return int(annotations(node).get(GPUS_ANNOTATION, "0"))
