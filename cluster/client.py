"""The client: the few answers of the API server that are needed, each validated at the edge.

The program itself only reads with it, but for giving back what it adopted; the privilege probe makes pods with it.
"""

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
from config.cluster import POLICIES_SINCE, ClusterSettings

TIMEOUT_SECONDS = 5
"""Bound of one request: an unreachable cluster is found out within it."""
_WEBHOOK_SECONDS = 30
"""What the API server may wait for one admission webhook at most (ValidatingWebhook, timeoutSeconds)."""

_KI = 1024
_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi|Ti)?")
_BYTES = {None: 1, "Ki": _KI, "Mi": _KI**2, "Gi": _KI**3, "Ti": _KI**4}

_PULL_TYPES = frozenset({"kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"})

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"

T = TypeVar("T")


def _statuses(conditions: object) -> object:
    """Conditions as a mapping of type to status."""
    return {each["type"]: each["status"] for each in conditions} if isinstance(conditions, list) else conditions


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
    os_image: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "osImage"))
    kubelet: str = Field(default="", validation_alias=AliasPath("status", "nodeInfo", "kubeletVersion"))
    container_runtime: str = Field(
        default="", validation_alias=AliasPath("status", "nodeInfo", "containerRuntimeVersion")
    )
    memory_mib: Annotated[int, BeforeValidator(_mebibytes)] = Field(
        default=0, validation_alias=AliasPath("status", "capacity", "memory")
    )
    """MemTotal in MiB, as kubelet reports it."""
    gpus: int = Field(default=0, validation_alias=AliasPath("status", "allocatable", "nvidia.com/gpu"))
    """Allocatable `nvidia.com/gpu`: physical GPUs times replicas."""
    conditions: Annotated[dict[str, str], BeforeValidator(_statuses)] = Field(
        default={}, validation_alias=AliasPath("status", "conditions")
    )
    """What the node says of itself: type to status."""


class Namespace(_Answer):
    """A namespace and its labels."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    uid: str = Field(validation_alias=AliasPath("metadata", "uid"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))


class Container(_Answer):
    """A container of a pod template."""

    image: str = ""


class PodContainer(_Answer):
    """A container of a pod, and the resources that it is limited to."""

    image: str = ""
    limits: dict[str, str] = Field(default={}, validation_alias=AliasPath("resources", "limits"))


class ContainerState(_Answer):
    """Why a container waits, or how it ended."""

    reason: str = ""
    message: str = ""


class ContainerStatus(_Answer):
    """What the kubelet says of a container."""

    image_id: str = Field(default="", alias="imageID")
    state: dict[str, ContainerState] = {}
    """By `waiting`, `running` or `terminated`; one of them."""


class Pod(_Answer):
    """A pod, as far as the privilege probe looks at it."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    namespace: str = Field(validation_alias=AliasPath("metadata", "namespace"))
    labels: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "labels"))
    annotations: dict[str, str] = Field(default={}, validation_alias=AliasPath("metadata", "annotations"))
    containers: list[PodContainer] = Field(default=[], validation_alias=AliasPath("spec", "containers"))
    phase: str = Field(default="", validation_alias=AliasPath("status", "phase"))
    reason: str = Field(default="", validation_alias=AliasPath("status", "reason"))
    message: str = Field(default="", validation_alias=AliasPath("status", "message"))
    statuses: list[ContainerStatus] = Field(default=[], validation_alias=AliasPath("status", "containerStatuses"))

    @property
    def ended(self) -> bool:
        """Whether it holds no resources any more."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def gpus(self) -> int:
        """How many `nvidia.com/gpu` its containers have."""
        return sum(int(container.limits.get("nvidia.com/gpu", 0)) for container in self.containers)


class _Event(_Answer):
    message: str = ""


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


class PullSecret(_Answer):
    """A Secret with the login of a registry, its content included."""

    type: str = ""
    data: dict[str, str] = Field(default={}, repr=False)


class _Review(_Answer):
    allowed: bool = Field(validation_alias=AliasPath("status", "allowed"))


class Objection(_Answer):
    """What the API server has against a request: its status, and its own words."""

    code: int
    message: str


class _Status(_Answer):
    message: str = ""


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

    def pods(self, *, namespace: str = "", node: str = "") -> list[Pod]:
        """The pods of a namespace, or of all; on a node, or wherever they are."""
        place = f"/namespaces/{namespace}" if namespace else ""
        params = {"fieldSelector": f"spec.nodeName={node}"} if node else None
        return self._list(f"/api/v1{place}/pods", Pod, params=params)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """A pod, or None."""
        return self._find(f"/api/v1/namespaces/{namespace}/pods/{name}", Pod.model_validate)

    def pull_secret(self, namespace: str, name: str) -> PullSecret | None:
        """A Secret that pods pull images with, for a copy of it; None where there is none, or one of another type."""
        found = self._find(f"/api/v1/namespaces/{namespace}/secrets/{name}", PullSecret.model_validate)
        return found if found and found.type in _PULL_TYPES else None

    def log(self, namespace: str, pod: str, *, lines: int) -> str:
        """The last lines of a pod's log, or why they can't be read; empty while its container has none."""
        response = self._send(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", params={"tailLines": str(lines)})
        objection = _objection(response)
        if objection is None:
            return response.text
        none_yet = {httpx2.codes.BAD_REQUEST, httpx2.codes.NOT_FOUND}
        return "" if objection.code in none_yet else f"(its log can't be read: {objection.message})"

    def warnings(self, namespace: str, pod: str) -> list[str]:
        """What the pod's events of type Warning say."""
        selector = f"involvedObject.name={pod},type=Warning"
        path = f"/api/v1/namespaces/{namespace}/events"
        return [event.message for event in self._list(path, _Event, params={"fieldSelector": selector})]

    def allows(self, verb: str, resource: str, *, group: str = "", namespace: str = "") -> bool:
        """Whether the user may do this to every object of a resource; a subresource stands behind a slash."""
        name, _, subresource = resource.partition("/")
        asked = {"verb": verb, "resource": name, "subresource": subresource, "group": group, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return self._read(path, _Review.model_validate, method="POST", body=json.dumps(review)).allowed

    def create(self, manifest: Mapping[str, Any]) -> Objection | None:
        """Create an object that is not there yet.

        Returns:
            None where it was created, else what the API server or its admission has against it.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        return _objection(
            self._send(
                _path(manifest).rpartition("/")[0],
                method="POST",
                body=json.dumps(manifest),
                timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS,
            )
        )

    def delete(self, manifest: Mapping[str, Any]) -> None:
        """Delete an object, which may be gone already, or be on its way: some answer a conflict to that.

        Raises:
            ClusterError: if it is refused.
        """
        path = _path(manifest)
        objection = _objection(self._send(path, method="DELETE", timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS))
        if objection is not None and objection.code not in {httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT}:
            raise ClusterError(f"The cluster at {self.server} refuses to delete {path}: {objection.message}")

    def apply(self, manifest: Mapping[str, Any], *, manager: str) -> None:
        """Server-side apply, by force.

        Raises:
            ClusterError: if it is refused.
        """
        self._read(
            _path(manifest),
            lambda answer: answer,
            params={"fieldManager": manager, "force": "true"},
            body=json.dumps(manifest),
        )

    def objection(self, manifest: Mapping[str, Any], *, manager: str) -> Objection | None:
        """What the API server has against this object, its admission webhooks asked; nothing is stored.

        Returns:
            None where it would be taken.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        response = self._send(
            _path(manifest),
            params={"fieldManager": manager, "force": "true", "dryRun": "All"},
            body=json.dumps(manifest),
            timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS,
        )
        return _objection(response)

    def deployments(self) -> list[Installed]:
        """Every Deployment of every namespace."""
        return self._list("/apis/apps/v1/deployments", Installed)

    def cluster_policies(self) -> list[Installed]:
        """The GPU Operator's ClusterPolicies, whoever made them; none where their kind does not exist."""
        try:
            return self._list("/apis/nvidia.com/v1/clusterpolicies", Installed)
        except _NotFoundError:
            return []

    def gpu_clusters(self) -> list[Installed]:
        """The GPU Operator's GPUClusters, whoever made them; none where their kind does not exist."""
        try:
            return self._list("/apis/nvidia.com/v1alpha1/gpuclusters", Installed)
        except _NotFoundError:
            return []

    def has_runtime_class(self, name: str) -> bool:
        """Whether a RuntimeClass of this name exists."""
        return self._find(f"/apis/node.k8s.io/v1/runtimeclasses/{name}", lambda answer: answer) is not None

    def has_mutating_webhook(self, name: str) -> bool:
        """Whether a MutatingWebhookConfiguration of this name exists."""
        path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}"
        return self._find(path, lambda answer: answer) is not None

    def mutating_policy_versions(self) -> frozenset[str]:
        """The versions of admissionregistration.k8s.io that have MutatingAdmissionPolicy; empty where none has."""
        served = {
            version: self._find(f"/apis/admissionregistration.k8s.io/{version}", _Resources.model_validate)
            for version in POLICIES_SINCE
        }
        return frozenset(
            version
            for version, group in served.items()
            if group is not None and any(each.name == "mutatingadmissionpolicies" for each in group.resources)
        )

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

    def _read(  # noqa: PLR0913 - the parts of a request
        self,
        path: str,
        parse: Callable[[Any], T],
        *,
        params: dict[str, str] | None = None,
        accept: str = _JSON,
        method: str | None = None,
        body: str | None = None,
    ) -> T:
        method = method or ("GET" if body is None else "PATCH")
        response = self._send(path, params=params, accept=accept, method=method, body=body)
        match response.status_code:
            case httpx2.codes.OK | httpx2.codes.CREATED:
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

    def _send(  # noqa: PLR0913 - the parts of a request
        self,
        path: str,
        *,
        params: dict[str, str] | None = None,
        accept: str = _JSON,
        method: str | None = None,
        body: str | None = None,
        timeout_seconds: float | None = None,
    ) -> httpx2.Response:
        """A GET, or with a body a server-side apply, unless a method is named; whatever the answer says."""
        method = method or ("GET" if body is None else "PATCH")
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml" if method == "PATCH" else _JSON
        try:
            return self._http.request(
                method,
                path,
                params=params,
                headers=headers,
                content=body,
                timeout=TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds,
            )
        except httpx2.TransportError as error:
            raise ClusterUnreachableError(
                f"No answer from the cluster at {self.server} (context '{self.context}' of {self.kubeconfig}): "
                f"{error}\n"
                f"Check that it runs and that this machine reaches it: kubectl --context {self.context} get nodes"
            ) from error
        except (ConfigError, LookupError, TypeError, ValueError, OSError) as error:
            raise ClusterError(f"The credentials of context '{self.context}' can't be used: {error}") from error


def _objection(response: httpx2.Response) -> Objection | None:
    """What an answer has against its request."""
    if response.is_success:
        return None
    try:
        said = _Status.model_validate_json(response.content).message
    except ValidationError:
        # For a kind that it does not know yet, the API server answers in plain text.
        said = ""
    return Objection(
        code=response.status_code, message=said or f"the API server answered with status {response.status_code}"
    )


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
