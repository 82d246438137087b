"""The shapes that builders return."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from config.charts import ChartSettings
from manifests.versions import ChartPin

RBAC_GROUP: Final = "rbac.authorization.k8s.io"

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON: apiVersion, kind, metadata and the rest."""


@dataclass(frozen=True)
class ChartReference:
    """Where Helm finds a chart.

    Attributes:
        chart: OCI reference, local path, or the chart's name in `repository`.
        repository: address of a chart repository, or None.
        version: the chart's version, or None for a local chart, which has its own.
    """

    chart: str
    repository: str | None
    version: str | None


@dataclass(frozen=True)
class HelmRelease:
    """A Helm release.

    Attributes:
        name: the release's fixed name.
        namespace: where its objects go; created by us, before it.
        source: its chart.
        values: the chart's values; every path exists in the chart at its pinned version.
        timeout_seconds: bound of each wait: Helm's for the chart's hooks, and the program's for the release's pods.
    """

    name: str
    namespace: str
    source: ChartReference
    values: Mapping[str, Any]
    timeout_seconds: int


@dataclass(frozen=True)
class StackObject:
    """One object of a stack, and what must be there before it.

    Attributes:
        content: a Kubernetes object or a Helm release.
        depends_on: names of objects of the same module, or of what its component waits for.
        versioned: whether its own name says its content, so that another name is another object: the one before stays
            until nothing needs it any more.
    """

    content: Manifest | HelmRelease
    depends_on: tuple[str, ...] = ()
    versioned: bool = False

    @property
    def manifest(self) -> Manifest:
        """The Kubernetes object.

        Raises:
            TypeError: it is a Helm release.
        """
        if isinstance(self.content, HelmRelease):
            raise TypeError(f"{self.content.name} is a Helm release")
        return self.content


def manifests(objects: Mapping[str, StackObject]) -> dict[str, Manifest]:
    """The Kubernetes objects among a module's objects, without its release."""
    return {
        name: stack_object.manifest
        for name, stack_object in objects.items()
        if not isinstance(stack_object.content, HelmRelease)
    }


RELEASE_KEY: Final = "release"
"""The name of a module's Helm release, which has its component's own name in the stack."""


def logical_name(component: str, name: str) -> str:
    """What Pulumi calls a component's object."""
    return component if name == RELEASE_KEY else f"{component}-{name}"


def resolve_chart(settings: ChartSettings, pin: ChartPin) -> ChartReference:
    """Join what a stack says of a chart with the official chart's pin."""
    source = settings.source or pin.source
    if settings.is_local:
        return ChartReference(chart=source, repository=None, version=None)
    version = settings.version or pin.version
    if source.startswith("oci://"):
        return ChartReference(chart=source, repository=None, version=version)
    return ChartReference(chart=pin.name, repository=source, version=version)


def namespace(name: str, *, pod_security: str | None = None) -> Manifest:
    """A Namespace; `pod_security` is the Pod Security level that it enforces."""
    labels = {"app.kubernetes.io/part-of": "kai-anywhere"}
    if pod_security is not None:
        labels["pod-security.kubernetes.io/enforce"] = pod_security
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


_API_SERVER_PORTS = (443, 6443, 16443)
"""Where API servers listen: the Service `kubernetes`, kubeadm, k3s and k8s-snap, MicroK8s."""


def to_api_servers() -> Manifest:
    """The egress rule of a NetworkPolicy that leaves API servers alone, whatever their addresses are."""
    return {"ports": [{"port": port, "protocol": "TCP"} for port in _API_SERVER_PORTS]}


def as_user(user: int) -> Manifest:
    """The security context of a pod whose containers run as a user that is not root."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def unprivileged() -> Manifest:
    """The security context of a container that needs no power, and writes into its volumes alone."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def probe(path: str, port: str, period_seconds: int) -> Manifest:
    """A probe over HTTP."""
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": period_seconds, "timeoutSeconds": 5}
