"""What the loop observes, and what a behaviour may decide: plain values, so that behaviours are tested by value."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
"""A Kubernetes object as the API server gives it in JSON."""

MANAGER = "kai-anywhere-simulator"
"""Our field manager."""

APPLIED_ANNOTATION = "simulator.kai-anywhere.io/applied"
"""The hash of the manifest that an object was made from: an object that carries the current one is left alone."""


@dataclass(frozen=True)
class Ref:
    """An object's identity."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None


@dataclass(frozen=True)
class Apply:
    """Server-side apply, taking fields over from other managers."""

    manifest: Object
    manager: str = MANAGER


@dataclass(frozen=True)
class Merge:
    """A JSON merge patch (RFC 7386) of the object, or of its status subresource."""

    ref: Ref
    patch: Object
    status: bool = False


@dataclass(frozen=True)
class Delete:
    """Deletion; an object that is gone already is fine."""

    ref: Ref


Change = Apply | Merge | Delete


@dataclass(frozen=True)
class Decision:
    """Changes in their order: a failing one holds up the later ones. Complaints are for the log."""

    changes: tuple[Change, ...] = ()
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Endpoint:
    """A server of admission webhooks: its address, and the certificate to trust, as PEM."""

    url: str
    authority: str


@dataclass(frozen=True)
class World:
    """The objects that behaviours look at; kinds that the cluster does not know are empty."""

    now: str = ""
    """RFC 3339, for conditions."""
    nodes: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    """Those of the device plugin and of the Jobs that are emulated."""
    deployments: tuple[Object, ...] = ()
    daemon_sets: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    services: tuple[Object, ...] = ()
    service_accounts: tuple[Object, ...] = ()
    config_maps: tuple[Object, ...] = ()
    runtime_classes: tuple[Object, ...] = ()
    cluster_policies: tuple[Object, ...] = ()
    node_feature_rules: tuple[Object, ...] = ()
    kai_configs: tuple[Object, ...] = ()
    scheduling_shards: tuple[Object, ...] = ()
    webhook_configurations: tuple[Object, ...] = ()
    """Both kinds; those of KAI's operator."""
    webhooks: Endpoint | None = None
    """Where KAI's webhooks are served, if anybody serves them."""


def find(objects: Iterable[Object], name: str, namespace: str | None = None) -> Object | None:
    """The object of that name, in that namespace where one is given."""
    for candidate in objects:
        metadata = candidate["metadata"]
        if metadata["name"] == name and (namespace is None or metadata.get("namespace") == namespace):
            return candidate
    return None


def labels(resource: Object) -> Mapping[str, str]:
    """The labels, empty where there are none."""
    return resource["metadata"].get("labels") or {}


def annotations(resource: Object) -> Mapping[str, str]:
    """The annotations, empty where there are none."""
    return resource["metadata"].get("annotations") or {}


def at(value: Any, *path: str) -> Any:  # noqa: ANN401 (what lies at a path of a custom resource can be anything)
    """What lies at a path, None where the path ends early."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def has_condition(resource: Object, condition: str) -> bool:
    """Whether a condition of the status is True."""
    return any(
        entry["type"] == condition and entry["status"] == "True" for entry in at(resource, "status", "conditions") or ()
    )


def terminating(resource: Object) -> bool:
    """Whether the object is being deleted."""
    return resource["metadata"].get("deletionTimestamp") is not None


def owner_reference(owner: Object) -> Object:
    """The reference that lets garbage collection delete an object with its owner."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def keep(manifest: Mapping[str, Any], existing: Iterable[Object]) -> tuple[Apply, ...]:
    """The change that makes `manifest` exist: none where an object made from exactly it is there."""
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]
    metadata = manifest["metadata"]
    current = find(existing, metadata["name"], metadata.get("namespace"))
    if current is not None and annotations(current).get(APPLIED_ANNOTATION) == digest:
        return ()
    stamped = {**metadata, "annotations": {**metadata.get("annotations", {}), APPLIED_ANNOTATION: digest}}
    return (Apply({**manifest, "metadata": stamped}),)
