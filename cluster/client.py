"""The client: the few answers of the API server that are needed, each validated at the edge.

The program itself only reads with it, but for giving back what it adopted; the labels of many nodes are set with it
(cluster/labelling.py); the privilege probe makes pods with it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import httpx2
from lightkube.config import client_adapter
from lightkube.core.exceptions import ConfigError
from pydantic import TypeAdapter, ValidationError

from cluster.answers import (
    AccessReview,
    Deployment,
    DiscoveredGroup,
    Event,
    HelmRevision,
    Installed,
    Items,
    LiveObject,
    Namespace,
    Node,
    NodeMetadata,
    Objection,
    Pod,
    PullSecret,
    Resources,
    Status,
    Version,
)
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.kubeconfig import ChosenContext, choose_context, in_cluster
from config.cluster import POLICIES_SINCE, ClusterSettings

TIMEOUT_SECONDS = 5
"""Bound of one request: an unreachable cluster is found out within it."""
UP_TIMEOUT_SECONDS = 60
"""Bound of an answer within `pulumi up`, which asks for everything at once: one late answer would fail all of it. An
address where nobody listens is still found out within `TIMEOUT_SECONDS`."""
_WEBHOOK_SECONDS = 30
"""What the API server may wait for one admission webhook at most (ValidatingWebhook, timeoutSeconds)."""

_PULL_TYPES = frozenset({"kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"})

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"

_DISCOVERY = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
"""Every kind of the API server in one answer (Kubernetes 1.30 and later)."""

_PAGE = 500
"""Objects per answer to a list, as kubectl asks for them: a large cluster's objects are never in memory all at once."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """A connection to one cluster.

    Attributes:
        chosen: the context that it was opened with.
    """

    chosen: ChosenContext
    _http: httpx2.Client
    _timeout_seconds: float | None = None

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
    def connect(cls, settings: ClusterSettings, *, timeout_seconds: float | None = None) -> Self:
        """Open the cluster that a stack names, or kubectl's current one; arguments as of `open`."""
        return cls.open(settings.kubeconfig, settings.context, timeout_seconds=timeout_seconds)

    @classmethod
    def open(
        cls,
        kubeconfig: str | None = None,
        context: str | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> Self:
        """Open a cluster: kubectl's own file and current context where nothing else is named.

        Args:
            kubeconfig: the file.
            context: one of its contexts.
            timeout_seconds: bound of one request, in place of `TIMEOUT_SECONDS`.

        Raises:
            ClusterUnreachableError: if there is no kubeconfig.
            ClusterError: if it can't be read, or has no such context.
        """
        return cls._of(choose_context(kubeconfig, context), timeout_seconds)

    @classmethod
    def in_cluster(cls) -> Self:
        """Open the cluster of the pod that this process runs in, as its service account.

        Raises:
            ClusterUnreachableError: it does not run in a pod.
        """
        return cls._of(in_cluster())

    @classmethod
    def _of(cls, chosen: ChosenContext, timeout_seconds: float | None = None) -> Self:
        timeout = httpx2.Timeout(timeout_seconds or TIMEOUT_SECONDS)
        try:
            http = client_adapter.Client(chosen.config, client_adapter.ConnectionParams(timeout=timeout))
        except (ConfigError, ValueError, OSError, httpx2.InvalidURL) as error:
            raise ClusterError(
                f"The address or the certificates of context '{chosen.name}' can't be used: {error}\n"
                f"Check them with: kubectl --kubeconfig {chosen.file} config view"
            ) from error
        return cls(chosen, http, timeout_seconds)

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

    def node_metadata(self) -> dict[str, NodeMetadata]:
        """The metadata of every node by name, without the status, which is most of a node."""
        listed = self._list("/api/v1/nodes", NodeMetadata, accept=_METADATA.format("List"))
        return {node.name: node for node in listed}

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
        return self._find(
            object_path(manifest), lambda answer: LiveObject.model_validate({"content": answer}), accept=accept
        )

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

    def log(  # noqa: PLR0913 - the parts of a request
        self,
        namespace: str,
        pod: str,
        *,
        lines: int,
        container: str | None = None,
        previous: bool = False,
        limit_bytes: int | None = None,
    ) -> str:
        """The last lines of a container's log, or why they can't be read; empty while there is none.

        Args:
            namespace: the pod's.
            pod: its name.
            lines: at most.
            container: which, where there are several.
            previous: whether to read the log of the one that ran before the last restart.
            limit_bytes: at most.
        """
        params = {"tailLines": str(lines), "container": container, "limitBytes": limit_bytes and str(limit_bytes)}
        chosen = {name: value for name, value in params.items() if value} | ({"previous": "true"} if previous else {})
        response = self._send(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", params=chosen)
        objection = _objection(response)
        if objection is None:
            return response.text
        none_yet = {httpx2.codes.BAD_REQUEST, httpx2.codes.NOT_FOUND}
        return "" if objection.code in none_yet else f"(its log can't be read: {objection.message})"

    def warnings(self, namespace: str, pod: str) -> list[str]:
        """What the pod's events of type Warning say."""
        selector = f"involvedObject.name={pod},type=Warning"
        path = f"/api/v1/namespaces/{namespace}/events"
        return [event.message for event in self._list(path, Event, params={"fieldSelector": selector})]

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
        return self._read(path, AccessReview.model_validate, method="POST", body=json.dumps(review)).allowed

    def create(self, manifest: Mapping[str, Any]) -> Objection | None:
        """Create an object that is not there yet.

        Returns:
            None where it was created, else what the API server or its admission has against it.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        return _objection(
            self._send(
                object_path(manifest).rpartition("/")[0],
                method="POST",
                body=json.dumps(manifest),
                timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS,
            )
        )

    def dry_run(self, manifest: Mapping[str, Any], *, user: str) -> dict[str, Any] | Objection:
        """What the cluster would make of a new object of this user's; nothing is stored.

        Args:
            manifest: the object.
            user: as whom to ask, such as a service account's name; the connection's user must be allowed to.

        Returns:
            The object as admission leaves it, or what the API server or its admission has against it.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        response = self._send(
            object_path(manifest).rpartition("/")[0],
            method="POST",
            params={"dryRun": "All"},
            headers={"Impersonate-User": user},
            body=json.dumps(manifest),
            timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS,
        )
        return _objection(response) or dict(response.json())

    def delete(self, manifest: Mapping[str, Any]) -> None:
        """Delete an object, which may be gone already, or be on its way: some answer a conflict to that.

        Raises:
            ClusterError: if it is refused.
        """
        path = object_path(manifest)
        objection = _objection(self._send(path, method="DELETE", timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS))
        if objection is not None and objection.code not in {httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT}:
            raise ClusterError(f"The cluster at {self.server} refuses to delete {path}: {objection.message}")

    def remove(self, path: str, *, uid: str, resource_version: str | None = None) -> Objection | None:
        """Delete an object if it is still the one that was looked at, with what it controls.

        Args:
            path: of the object.
            uid: its identity: another object of the same name stays.
            resource_version: likewise its state, where it must not have changed since.

        Returns:
            None where it is deleted or gone, else what the API server has against it.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        still = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": still}
        objection = _objection(
            self._send(
                path,
                method="DELETE",
                body=json.dumps(options | {"propagationPolicy": "Background"}),
                timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS,
            )
        )
        return None if objection is None or objection.code == httpx2.codes.NOT_FOUND else objection

    def apply(self, manifest: Mapping[str, Any], *, manager: str) -> None:
        """Server-side apply, by force.

        Raises:
            ClusterError: if it is refused.
        """
        self._read(
            object_path(manifest),
            lambda answer: answer,
            params={"fieldManager": manager, "force": "true"},
            body=json.dumps(manifest),
        )

    def apply_metadata(self, manifest: Mapping[str, Any], *, manager: str) -> Objection | None:
        """Server-side apply, by force, of an object's metadata, which alone is answered.

        Returns:
            None where it was applied, else what the API server or its admission has against it.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        response = self._send(
            object_path(manifest),
            params={"fieldManager": manager, "force": "true"},
            accept=_METADATA.format(""),
            body=json.dumps(manifest),
            timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS,
        )
        return _objection(response)

    def objection(self, manifest: Mapping[str, Any], *, manager: str) -> Objection | None:
        """What the API server has against this object, its admission webhooks asked; nothing is stored.

        Returns:
            None where it would be taken.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        response = self._send(
            object_path(manifest),
            params={"fieldManager": manager, "force": "true", "dryRun": "All"},
            body=json.dumps(manifest),
            timeout_seconds=_WEBHOOK_SECONDS + TIMEOUT_SECONDS,
        )
        return _objection(response)

    def objects(
        self, path: str, kind: type[T], *, params: dict[str, str] | None = None, metadata: bool = False
    ) -> list[T]:
        """Every object under a path of the API, page by page; none where the API server does not know the kind.

        Args:
            path: of a list, as `/apis/scheduling.run.ai/v2/queues`.
            kind: the model that each object is read as.
            params: of the request, such as a selector.
            metadata: whether to ask for nothing but that.

        Raises:
            ClusterError: if the API server can't be asked, or refuses.
        """
        try:
            return self._list(path, kind, params=params, accept=_METADATA.format("List") if metadata else _JSON)
        except _NotFoundError:
            return []

    def kinds(self) -> list[DiscoveredGroup]:
        """Every group of the API server with its versions, the preferred one first, and their kinds."""
        groups = TypeAdapter(list[DiscoveredGroup])
        return [
            each
            for root in ("/api", "/apis")
            for each in self._read(root, lambda answer: groups.validate_python(answer["items"]), accept=_DISCOVERY)
        ]

    def deployments(self) -> list[Installed]:
        """Every Deployment of every namespace."""
        return self._list("/apis/apps/v1/deployments", Installed)

    def cluster_policies(self) -> list[Installed]:
        """The GPU Operator's ClusterPolicies, whoever made them; none where their kind does not exist."""
        return self.objects("/apis/nvidia.com/v1/clusterpolicies", Installed)

    def gpu_clusters(self) -> list[Installed]:
        """The GPU Operator's GPUClusters, whoever made them; none where their kind does not exist."""
        return self.objects("/apis/nvidia.com/v1alpha1/gpuclusters", Installed)

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
            version: self._find(f"/apis/admissionregistration.k8s.io/{version}", Resources.model_validate)
            for version in POLICIES_SINCE
        }
        return frozenset(
            version
            for version, group in served.items()
            if group is not None and any(each.name == "mutatingadmissionpolicies" for each in group.resources)
        )

    def has_kind(self, version: str, plural: str) -> bool:
        """Whether the API server knows a kind, as `scheduling.run.ai/v2` and `queues`."""
        group = self._find(f"/apis/{version}", Resources.model_validate)
        return group is not None and any(each.name == plural for each in group.resources)

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
        return [item for page in self._pages(path, kind, params=params or {}, accept=accept) for item in page]

    def _pages(self, path: str, kind: type[T], *, params: dict[str, str], accept: str) -> Iterator[list[T]]:
        adapter = TypeAdapter(list[kind])  # type: ignore[valid-type]  # kind is a runtime class
        after: dict[str, str] = {}
        while True:
            listed = self._read(
                path, Items.model_validate, params=params | {"limit": str(_PAGE)} | after, accept=accept
            )
            try:
                yield adapter.validate_python(listed.items or [])
            except ValidationError as error:
                raise _not_understood(path, error) from error
            if not listed.next_page:
                return
            after = {"continue": listed.next_page}

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
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> httpx2.Response:
        """A GET, or with a body a server-side apply, unless a method is named; whatever the answer says."""
        method = method or ("GET" if body is None else "PATCH")
        sent = {"Accept": accept} | dict(headers or {})
        if body is not None:
            sent["Content-Type"] = "application/apply-patch+yaml" if method == "PATCH" else _JSON
        try:
            return self._http.request(
                method,
                path,
                params=params,
                headers=sent,
                content=body,
                timeout=httpx2.Timeout(
                    timeout_seconds or self._timeout_seconds or TIMEOUT_SECONDS, connect=TIMEOUT_SECONDS
                ),
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
        said = Status.model_validate_json(response.content).message
    except ValidationError:
        # For a kind that it does not know yet, the API server answers in plain text.
        said = ""
    return Objection(
        code=response.status_code, message=said or f"the API server answered with status {response.status_code}"
    )


def plural(kind: str) -> str:
    """A kind's plural, formed as Kubernetes itself guesses it."""
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def object_path(manifest: Mapping[str, Any]) -> str:
    """Where the API server has an object."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    group = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{group}{namespace}/{plural(manifest['kind'])}/{metadata['name']}"


class _NotFoundError(ClusterError):
    pass


def _not_understood(path: str, error: ValueError) -> ClusterError:
    return ClusterError(f"The cluster's answer to GET {path} is not what Kubernetes 1.30 or later sends: {error}")
