"""Previews between two stacks' settings, as the engine would tell them: made of the program's own objects."""

from collections.abc import Mapping
from typing import Any

from config.stack import StackSettings
from manifests.every_object import objects, releases
from manifests.node_labels import node_labels
from operations.engine_events import Record, read_events
from testbed.stacks import Json, parse
from tests.unit.operations.pull_request.logs import lines, summary

_TOP = "kai-anywhere:index:KaiAnywhere"
_COMPONENTS = {
    "gpu-operator": "GpuOperator",
    "reservation": "ReservationOverrides",
    "admission": "AdmissionServer",
    "kai-scheduler": "KaiScheduler",
    "gvirtus": "Gvirtus",
    "pod-guard": "PodGuard",
}


def preview(before: Json | None, after: Json | None) -> Record:
    """The preview of an update; without a stack before it is the first one, without one after the last."""
    old, new = ({} if stack is None else _resources(parse(stack)) for stack in (before, after))
    steps = [_step(urn, old.get(urn), new.get(urn)) for urn in dict.fromkeys((*new, *old))]
    return read_events(lines(*steps, summary(update=1)))


def _resources(settings: StackSettings) -> dict[str, dict[str, Any]]:
    resources: dict[str, dict[str, Any]] = {}
    for node, labels in node_labels(settings).items():
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}
        resources[urn("NodeLabels", "kubernetes:core/v1:NodePatch", f"node-labels-{node}")] = manifest
    for name, manifest in objects(settings).items():
        group = "core/v1" if manifest["apiVersion"] == "v1" else manifest["apiVersion"]
        resources[urn(_component(name), f"kubernetes:{group}:{manifest['kind']}", name)] = manifest
    for name, release in releases(settings).items():
        source = release.source
        inputs = {"name": release.name, "chart": source.chart, "version": source.version, "values": release.values}
        resources[urn(_component(name), "kubernetes:helm.sh/v3:Release", name)] = inputs
    return resources


def _component(name: str) -> str:
    return next(component for start, component in _COMPONENTS.items() if name.startswith(start))


def urn(component: str, kind: str, name: str) -> str:
    """A resource's URN in a component of ours."""
    return f"urn:pulumi:test::kai-anywhere::{_TOP}$kai-anywhere:index:{component}${kind}::{name}"


def _step(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    op = "create" if old is None else "delete" if new is None else "same" if old == new else "update"
    kind = name.split("::")[2].rsplit("$", 1)[-1]
    states = {key: None if state is None else {"inputs": state} for key, state in (("old", old), ("new", new))}
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": name, "type": kind, **states}}}
