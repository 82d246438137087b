"""Which cluster a stack belongs to, and what is known of it without asking it."""

import re
from enum import StrEnum, unique
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from config.model import LABEL_KEY, LABEL_VALUE, HostPath, Settings


@unique
class Distribution(StrEnum):
    """The Kubernetes distribution: decides where containerd's configuration and socket lie on a node."""

    KUBEADM = "kubeadm"
    K3S = "k3s"
    RKE2 = "rke2"
    K8S_SNAP = "k8s-snap"
    MICROK8S = "microk8s"


POLICIES_SINCE = {"v1": (1, 36), "v1beta1": (1, 34)}
"""Kubernetes' first version that serves MutatingAdmissionPolicy, by version of admissionregistration.k8s.io (KEP-3962);
v1beta1 only where somebody switched it on."""

OLDEST_KUBERNETES = (1, 30)
"""The first one with ValidatingAdmissionPolicy v1, which the guards are."""

_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,3})", re.ASCII)


def minor_version(value: str) -> tuple[int, int]:
    """Read `1.36` or `v1.36` as `(1, 36)`.

    Raises:
        ValueError: if the text is not such a version.
    """
    match = _VERSION.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is not a Kubernetes version such as 1.36")
    return int(match[1]), int(match[2])


def _known_form(value: str) -> str:
    try:
        version = minor_version(value)
    except ValueError as error:
        raise PydanticCustomError(
            "kubernetes_version", "not a Kubernetes version: write major and minor in quotes, such as '1.36'"
        ) from error
    if version < OLDEST_KUBERNETES:
        raise PydanticCustomError(
            "kubernetes_version",
            "older than 1.30, which the guard of the reservation namespace needs: upgrade the cluster; 1.30 itself is "
            "'1.30' in quotes",
        )
    return value


_OBJECT = re.compile(r"Node/[^/]+|[A-Z][A-Za-z]+(/[a-z0-9][-a-z0-9.]*){1,2}")


def _object_name(value: str) -> str:
    if not _OBJECT.fullmatch(value):
        raise PydanticCustomError(
            "object_name",
            "not an object's name: write Kind/name, such as Queue/default-queue or Node/jetson-1, and "
            "Kind/namespace/name where the kind has namespaces",
        )
    return value


ObjectName = Annotated[str, AfterValidator(_object_name), Field(title="object name", examples=["Queue/default-queue"])]
"""A Kubernetes object: kind and name, with the namespace between them where the kind has namespaces."""


_TAINT = re.compile(rf"{LABEL_KEY.pattern}(={LABEL_VALUE.pattern})?:(NoSchedule|PreferNoSchedule|NoExecute)", re.ASCII)


def _taint(value: str) -> str:
    if not _TAINT.fullmatch(value):
        raise PydanticCustomError(
            "taint",
            "not a taint: write it as kubectl does, key=value:effect or key:effect for every value; the effect is "
            "NoSchedule, PreferNoSchedule or NoExecute",
        )
    return value


Taint = Annotated[str, AfterValidator(_taint), Field(title="taint", examples=["dedicated=gpus:NoSchedule"])]
"""A taint of a node, as `kubectl taint` takes it."""


class ClusterSettings(Settings):
    """How to reach the cluster, and its distribution."""

    distribution: Distribution
    kubeconfig: Annotated[str, Field(min_length=1, title="path", examples=["~/.kube/config"])] | None = None
    """Path of a kubeconfig; without it, KUBECONFIG or ~/.kube/config as kubectl does."""
    context: Annotated[str, Field(min_length=1, title="context name")] | None = None
    """A context of that kubeconfig; without it, its current one."""
    kubernetes_version: (
        Annotated[str, AfterValidator(_known_form), Field(title="version", examples=["1.36"])] | None
    ) = None
    """The oldest API server that this stack must work on (`1.36`), checked without a cluster; preflight compares it
    with the server's own."""
    mutating_policies: Literal["v1beta1"] | None = None
    """Kubernetes 1.34 and 1.35: their API servers serve MutatingAdmissionPolicy v1beta1, since it was switched on there
    (docs/distributions.md). From 1.36 on v1 is served by itself, and nothing is to be said."""
    adopt: Annotated[tuple[ObjectName, ...], Field(strict=False)] = ()
    """Objects that exist already and that the stack may change all the same: `Queue/default-queue`,
    `ConfigMap/gpu-operator/gpu-operator-endpoints`, `Node/jetson-1` for its labels. Their values are given back."""
    tolerated_taints: Annotated[tuple[Taint, ...], Field(strict=False)] = ()
    """Taints of nodes that every pod of this program, of the GPU Operator and of KAI tolerates:
    `dedicated=gpus:NoSchedule`, or `dedicated:NoSchedule` for every value. The GPU Operator's pods on nodes tolerate
    `nvidia.com/gpu` without it. Pods that use the GPUs have to tolerate them too."""
    containerd_base_dir: HostPath | None = None
    """k8s-snap only: the bootstrap option `containerd-base-dir`, recorded on a node in
    /var/snap/k8s/common/lock/.containerd-base-dir."""

    @property
    def policies_version(self) -> str | None:
        """Under which version of admissionregistration.k8s.io the stack has its MutatingAdmissionPolicies.

        None where the API servers serve none, by what the settings say; the cluster is not asked.
        """
        if self.mutating_policies is not None:
            return self.mutating_policies
        version = self.kubernetes_version
        return "v1" if version is None or minor_version(version) >= POLICIES_SINCE["v1"] else None

    @model_validator(mode="after")
    def _beta_policies_fit_the_version(self) -> Self:
        if self.mutating_policies is None or self.kubernetes_version is None:
            return self
        if minor_version(self.kubernetes_version) < POLICIES_SINCE["v1beta1"]:
            raise PydanticCustomError(
                "beta_policies",
                "mutating_policies 'v1beta1' is for Kubernetes 1.34 and later, where it can be switched on; "
                "kubernetes_version is {version}. Remove mutating_policies, or correct kubernetes_version.",
                {"version": self.kubernetes_version},
            )
        return self

    @model_validator(mode="after")
    def _base_dir_is_for_k8s_snap(self) -> Self:
        if self.containerd_base_dir is not None and self.distribution is not Distribution.K8S_SNAP:
            raise PydanticCustomError(
                "containerd_base_dir",
                "containerd_base_dir is an option of k8s-snap; distribution is '{distribution}'. Remove it.",
                {"distribution": self.distribution.value},
            )
        return self
