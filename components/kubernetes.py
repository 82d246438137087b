"""Registers manifests and Helm releases.

Manifests are registered by their type token: the SDK's class of a core kind takes the same mapping, but importing its
package costs every preview 0.6 s, an eighth of its whole time, for types that nothing here uses.
"""

from collections.abc import Mapping

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from manifests.objects import HelmRelease, Manifest
from manifests.ownership import FIELD_MANAGER, field_manager

_TAKE_BACK = {"pulumi.com/patchForce": "true"}
"""Repairs a field that somebody edited by hand; without it server-side apply stops at the other field manager."""


def this_stack() -> str:
    """The stack as its field managers name it."""
    return f"{pulumi.get_project()}/{pulumi.get_stack()}"


def register(name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register one manifest as the Pulumi resource of its kind.

    Args:
        name: the resource's logical name.
        manifest: the object.
        opts: parent, provider and dependencies.
    """
    return _register(manifest["kind"], name, manifest, opts)


def register_node_labels(
    name: str, node: str, labels: Mapping[str, pulumi.Input[str]], opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    """Own labels of a node by server-side apply: they are released, and so removed, when the resource is deleted."""
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}
    return _register("NodePatch", name, manifest, opts)


def _register(kind: str, name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    group = "core/v1" if manifest["apiVersion"] == "v1" else manifest["apiVersion"]
    ours = _TAKE_BACK | {FIELD_MANAGER: field_manager(this_stack(), name)}
    metadata = manifest["metadata"] | {"annotations": manifest["metadata"].get("annotations", {}) | ours}
    return pulumi.CustomResource(f"kubernetes:{group}:{kind}", name, manifest | {"metadata": metadata}, opts)


def register_release(name: str, release: HelmRelease, opts: pulumi.ResourceOptions) -> Release:
    """Register a Helm release under its fixed name, so that an interrupted run finds it again."""
    source = release.source
    return Release(
        name,
        name=release.name,
        namespace=release.namespace,
        chart=source.chart,
        version=source.version,
        repository_opts=None if source.repository is None else RepositoryOptsArgs(repo=source.repository),
        values=dict(release.values),
        timeout=release.timeout_seconds,
        opts=opts,
    )
