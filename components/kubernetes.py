"""Registers manifests and Helm releases; imports only the API groups in use, since each costs every preview time."""

from collections.abc import Callable

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, NodePatch
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from manifests.objects import HelmRelease, Manifest

_TYPED: dict[tuple[str, str], Callable[..., pulumi.CustomResource]] = {
    ("v1", "ConfigMap"): ConfigMap,
    ("v1", "Namespace"): Namespace,
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"): MutatingAdmissionPolicy,
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"): MutatingAdmissionPolicyBinding,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): ValidatingAdmissionPolicy,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): ValidatingAdmissionPolicyBinding,
}

_TAKE_BACK = {"pulumi.com/patchForce": "true"}
"""Repairs a field that somebody edited by hand; without it server-side apply stops at the other field manager."""


def register(name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register one manifest as the Pulumi resource of its kind.

    Args:
        name: the resource's logical name.
        manifest: the object; kinds without a class of their own become a CustomResource.
        opts: parent, provider and dependencies.
    """
    metadata = manifest["metadata"] | {"annotations": manifest["metadata"].get("annotations", {}) | _TAKE_BACK}
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    rest = {key: value for key, value in manifest.items() if key not in {"apiVersion", "kind", "metadata"}}
    typed = _TYPED.get((api_version, kind))
    if typed is not None:
        return typed(name, metadata=metadata, opts=opts, **rest)
    return CustomResource(name, api_version=api_version, kind=kind, metadata=metadata, opts=opts, **rest)


def register_node_labels(name: str, node: str, labels: dict[str, str], opts: pulumi.ResourceOptions) -> NodePatch:
    """Own labels of a node by server-side apply: they are released, and so removed, when the resource is deleted."""
    return NodePatch(name, metadata={"name": node, "labels": labels, "annotations": dict(_TAKE_BACK)}, opts=opts)


def register_release(name: str, release: HelmRelease, opts: pulumi.ResourceOptions) -> Release:
    """Register a Helm release under its fixed name, so that an interrupted run finds it again."""
    return Release(
        name,
        name=release.name,
        namespace=release.namespace,
        chart=release.chart,
        version=release.version,
        repository_opts=None if release.repository is None else RepositoryOptsArgs(repo=release.repository),
        values=dict(release.values),
        timeout=release.timeout_seconds,
        opts=opts,
    )
