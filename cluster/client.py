"""A read-only client: the few answers of the API server that the program needs, each validated at the edge."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeVar

import httpx2
from lightkube.config import client_adapter
from lightkube.core.exceptions import ConfigError
from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.kubeconfig import ChosenContext, choose_context
from config.cluster import ClusterSettings

TIMEOUT_SECONDS = 5
"""Bound of one request: an unreachable cluster is found out within it."""

_KI = 1024
_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi|Ti)?")
_BYTES = {None: 1, "Ki": _KI, "Mi": _KI**2, "Gi": _KI**3, "Ti": _KI**4}

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"

T = TypeVar("T")


def _mebibytes(quantity: object) -> object:
    """Read the binary quantities that kubelet reports (`128Gi`, `131072Mi`) as MiB."""
    match = _QUANTITY.fullmatch(str(quantity))
    return int(match[1]) * _BYTES[match[2]] // _KI**2 if match else quantity


class _Answer(BaseModel):
    """An answer of the API server: the fields we read, with their types; it may hold more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class FieldOwner(_Answer):
    """An entry of `metadata.managedFields`: who last wrote which fields."""

    manager: str = ""
    subresource: str = ""
    fields: dict[str, Any] = Field(default={}, alias="fieldsV1")

    def owns_label(self, label: str) -> bool:
        """Whether it wrote this label."""
        labels = self.fields.get("f:metadata", {}).get("f:labels", {})
        return f"f:{label}" in labels


class LiveObject(_Answer):
    """An object of any kind as it is now, and who wrote it."""

    content: dict[str, Any]
    owners: list[FieldOwner] = Field(
        default=[], validation_alias=AliasPath("content", "metadata", "managedFields"), exclude=True
    )
    annotations: dict[str, str] = Field(
        default={}, validation_alias=AliasPath("content", "metadata", "annotations"), exclude=True
    )

    @property
    def managers(self) -> list[str]:
        """Who wrote anything of it but its status, in the order of the API server."""
        return list(dict.fromkeys(owner.manager for owner in self.owners if not owner.subresource))


class Node(_Answer):
    """A node, as far as the program looks at it."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    owners: list[FieldOwner] = Field(default=[], validation_alias=AliasPath("metadata", "managedFields"))
    architecture: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "architecture"))
    kernel: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "kernelVersion"))
    memory_mib: Annotated[int, BeforeValidator(_mebibytes)] = Field(
        default=0, validation_alias=AliasPath("status", "capacity", "memory")
    )
    """MemTotal in MiB, as kubelet reports it."""
    gpus: int = Field(default=0, validation_alias=AliasPath("status", "allocatable", "nvidia.com/gpu"))
    """Allocatable `nvidia.com/gpu`: physical GPUs times replicas."""


class Namespace(_Answer):
    """A namespace and its labels."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    uid: str = Field(validation_alias=AliasPath("metadata", "uid"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))


class Container(_Answer):
    """A container of a pod template."""

    image: str = ""


class Deployment(_Answer):
    """A Deployment's readiness."""

    desired: int = Field(default=1, validation_alias=AliasPath("spec", "replicas"))
    available: int = Field(default=0, validation_alias=AliasPath("status", "availableReplicas"))
    updated: int = Field(default=0, validation_alias=AliasPath("status", "updatedReplicas"))
    """Replicas of the present template."""
    generation: int = Field(default=0, validation_alias=AliasPath("metadata", "generation"))
    observed: int = Field(default=0, validation_alias=AliasPath("status", "observedGeneration"))
    """The generation that the status speaks of."""


class Installed(_Answer):
    """An object that says which Helm release it came with, if it came with one."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(default="", validation_alias=AliasPath("metadata", "namespace"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    containers: list[Container] = Field(
        default=[], validation_alias=AliasPath("spec", "template", "spec", "containers")
    )

    @property
    def release(self) -> tuple[str, str] | None:
        """Namespace and name of its Helm release."""
        name = self.annotations.get("meta.helm.sh/release-name")
        return (self.annotations.get("meta.helm.sh/release-namespace", self.namespace), name) if name else None


class HelmRevision(_Answer):
    """One stored revision of a Helm release: the Secret's labels, never its content."""

    secret: str = Field(validation_alias=AliasPath("metadata", "name"))
    status: str = Field(default="", validation_alias=AliasPath("metadata", "labels", "status"))
    created: str = Field(default="", validation_alias=AliasPath("metadata", "creationTimestamp"))


class Version(_Answer):
    """The API server's version."""

    git: str = Field(alias="gitVersion")
    major: Annotated[str, Field(pattern=r"^\d+$")]
    minor: Annotated[str, Field(pattern=r"^\d+\+?$")]

    @property
    def minor_version(self) -> tuple[int, int]:
        """Major and minor as numbers; managed clusters write the minor as `36+`."""
        return int(self.major), int(self.minor.rstrip("+"))


class _Items(_Answer):
    # An empty list of metadata comes as null (kube-apiserver 1.36).
    items: list[dict[str, Any]] | None


class _Named(_Answer):
    name: str


class _Resources(_Answer):
    resources: list[_Named] = []


@dataclass(frozen=True)
class Cluster:
    """A connection to one cluster.

    Attributes:
        chosen: the context that it was opened with.
    """

    chosen: ChosenContext
    _http: httpx2.Client

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self.chosen.config.cluster.server)

    @property
    def context(self) -> str:
        """The context's name, for messages."""
        return self.chosen.name

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig's path, for messages."""
        return self.chosen.file

    @classmethod
    def connect(cls, settings: ClusterSettings) -> Self:
        """Open the cluster that a stack names, or kubectl's current one.

        Raises:
            ClusterUnreachableError: if there is no kubeconfig.
            ClusterError: if it can't be read, or has no such context.
        """
        chosen = choose_context(settings)
        timeout = httpx2.Timeout(TIMEOUT_SECONDS)
        try:
            http = client_adapter.Client(chosen.config, client_adapter.ConnectionParams(timeout=timeout))
        except (ConfigError, ValueError, OSError, httpx2.InvalidURL) as error:
            raise ClusterError(
                f"The address or the certificates of context '{chosen.name}' can't be used: {error}\n"
                f"Check them with: kubectl --kubeconfig {chosen.file} config view"
            ) from error
        return cls(chosen, http)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def version(self) -> Version:
        """The API server's version."""
        return self._read("/version", Version.model_validate)

    def uid(self) -> str:
        """The cluster's identity: the UID of its kube-system namespace, made once with the cluster."""
        namespace = self.namespace("kube-system")
        if namespace is None:
            raise ClusterError(f"{self.server} has no kube-system namespace: this is not a Kubernetes cluster.")
        return namespace.uid

    def nodes(self) -> dict[str, Node]:
        """Every node by name."""
        return {node.name: node for node in self._list("/api/v1/nodes", Node)}

    def namespace(self, name: str) -> Namespace | None:
        """A namespace, or None."""
        return self._find(f"/api/v1/namespaces/{name}", Namespace.model_validate)

    def deployment(self, namespace: str, name: str) -> Deployment | None:
        """A Deployment, or None."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        return self._find(path, Deployment.model_validate)

    def find_object(self, manifest: Mapping[str, Any]) -> LiveObject | None:
        """The object of a manifest's kind, namespace and name, or None; of a Secret the metadata alone."""
        accept = _METADATA.format("") if manifest["kind"] == "Secret" else _JSON
        return self._find(_path(manifest), lambda answer: LiveObject.model_validate({"content": answer}), accept=accept)

    def apply(self, manifest: Mapping[str, Any], *, manager: str) -> None:
        """Server-side apply, by force: the one change that this client makes, to give adopted objects back.

        Raises:
            ClusterError: if it is refused.
        """
        self._read(
            _path(manifest),
            lambda answer: answer,
            params={"fieldManager": manager, "force": "true"},
            body=json.dumps(manifest),
        )

    def deployments(self) -> list[Installed]:
        """Every Deployment of every namespace."""
        return self._list("/apis/apps/v1/deployments", Installed)

    def cluster_policies(self) -> list[Installed]:
        """The GPU Operator's ClusterPolicies, whoever made them; none where their kind does not exist."""
        try:
            return self._list("/apis/nvidia.com/v1/clusterpolicies", Installed)
        except _NotFoundError:
            return []

    def has_runtime_class(self, name: str) -> bool:
        """Whether a RuntimeClass of this name exists."""
        return self._find(f"/apis/node.k8s.io/v1/runtimeclasses/{name}", lambda answer: answer) is not None

    def serves_mutating_admission_policies(self) -> bool:
        """Whether admissionregistration.k8s.io/v1 has them: Kubernetes 1.36, not switched off."""
        group = self._find("/apis/admissionregistration.k8s.io/v1", _Resources.model_validate)
        return group is not None and any(r.name == "mutatingadmissionpolicies" for r in group.resources)

    def helm_revisions(self, namespace: str, release: str) -> list[HelmRevision]:
        """The stored revisions of a Helm release. Only metadata is asked for: the content holds the chart's values."""
        return self._list(
            f"/api/v1/namespaces/{namespace}/secrets",
            HelmRevision,
            params={"labelSelector": f"owner=helm,name={release}"},
            accept=_METADATA.format("List"),
        )

    def _list(
        self,
        path: str,
        kind: type[T],
        *,
        params: dict[str, str] | None = None,
        accept: str = _JSON,
    ) -> list[T]:
        listed = self._read(path, _Items.model_validate, params=params, accept=accept)
        try:
            return TypeAdapter(list[kind]).validate_python(listed.items or [])  # type: ignore[valid-type]  # kind is a runtime class
        except ValidationError as error:
            raise _not_understood(path, error) from error

    def _find(self, path: str, parse: Callable[[Any], T], *, accept: str = _JSON) -> T | None:
        try:
            return self._read(path, parse, accept=accept)
        except _NotFoundError:
            return None

    def _read(
        self,
        path: str,
        parse: Callable[[Any], T],
        *,
        params: dict[str, str] | None = None,
        accept: str = _JSON,
        body: str | None = None,
    ) -> T:
        method = "GET" if body is None else "PATCH"
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": "application/apply-patch+yaml"})
        try:
            response = self._http.request(method, path, params=params, headers=headers, content=body)
        except httpx2.TransportError as error:
            raise ClusterUnreachableError(
                f"No answer from the cluster at {self.server} (context '{self.context}' of {self.kubeconfig}): "
                f"{error}\n"
                f"Check that it runs and that this machine reaches it: kubectl --context {self.context} get nodes"
            ) from error
        except (ConfigError, LookupError, TypeError, ValueError, OSError) as error:
            raise ClusterError(f"The credentials of context '{self.context}' can't be used: {error}") from error
        match response.status_code:
            case httpx2.codes.OK:
                pass
            case httpx2.codes.NOT_FOUND:
                raise _NotFoundError(path)
            case httpx2.codes.UNAUTHORIZED | httpx2.codes.FORBIDDEN as code:
                raise ClusterError(
                    f"The cluster at {self.server} refuses {method} {path} to context '{self.context}' ({code}).\n"
                    "Use a context with cluster-admin rights: the program creates cluster-wide policies and namespaces."
                )
            case code:
                raise ClusterUnreachableError(
                    f"The cluster at {self.server} answered {method} {path} with status {code}."
                )
        try:
            return parse(response.json())
        except ValueError as error:
            raise _not_understood(path, error) from error


def _path(manifest: Mapping[str, Any]) -> str:
    """Where the API server has an object. The plural is formed as Kubernetes itself guesses it from a kind."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    kind = manifest["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    group = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{group}{namespace}/{plural}/{metadata['name']}"


class _NotFoundError(ClusterError):
    pass


def _not_understood(path: str, error: ValueError) -> ClusterError:
    return ClusterError(f"The cluster's answer to GET {path} is not what Kubernetes 1.30 or later sends: {error}")
