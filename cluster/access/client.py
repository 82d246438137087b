"""The client: the few answers of the API server that are needed, each validated at the edge.

The program itself only reads with it, but for giving back what it adopted; the labels of many nodes are set with it
(cluster/labelling.py); the privilege probe makes pods with it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from cluster.access.answers.answer import Answer
from cluster.access.answers.nodes import Node, NodeMetadata
from cluster.access.answers.objects import (
    DaemonSet,
    Deployment,
    HelmRevision,
    Installed,
    LiveObject,
    Namespace,
    PullSecret,
)
from cluster.access.answers.pods import Event, Pod
from cluster.access.answers.server import AccessReview, DiscoveredGroup, Objection, Resources, Version, page_of
from cluster.access.connection import ADMISSION_SECONDS, JSON, METADATA, Connection, NotFoundError, objection_of
from cluster.errors import ClusterError
from config.cluster import POLICIES_SINCE
from manifests.ownership import key

_PULL_TYPES = frozenset({"kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"})

_NODES = "/api/v1/nodes"
_DISCOVERY = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
"""Every kind of the API server in one answer (Kubernetes 1.30 and later)."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cluster(Connection):
    """What is asked of one cluster."""

    def version(self) -> Version:
        """The API server's version."""
        return self._read("/version", Version.model_validate_json)

    def uid(self) -> str:
        """The cluster's identity: the UID of its kube-system namespace, made once with the cluster."""
        namespace = self.namespace("kube-system")
        if namespace is None:
            raise ClusterError(f"{self.server} has no kube-system namespace: this is not a Kubernetes cluster.")
        return namespace.uid

    def nodes(self) -> dict[str, Node]:
        """Every node by name."""
        return {node.name: node for node in self._list(_NODES, Node)}

    def node_metadata(self) -> dict[str, NodeMetadata]:
        """The metadata of every node by name, without the status, which is most of a node."""
        listed = self._list(_NODES, NodeMetadata, accept=METADATA.format("List"))
        return {node.name: node for node in listed}

    def namespace(self, name: str) -> Namespace | None:
        """A namespace, or None."""
        return self._find(f"/api/v1/namespaces/{name}", Namespace.model_validate_json)

    def deployment(self, namespace: str, name: str) -> Deployment | None:
        """A Deployment, or None."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        return self._find(path, Deployment.model_validate_json)

    def find_object(self, manifest: Mapping[str, Any]) -> LiveObject | None:
        """The object of a manifest's kind, namespace and name, or None; of a Secret the metadata alone."""
        accept = METADATA.format("") if manifest["kind"] == "Secret" else JSON
        return self._find(object_path(manifest), lambda answer: LiveObject(content=json.loads(answer)), accept=accept)

    def pods(self, *, namespace: str = "", node: str = "") -> list[Pod]:
        """The pods of a namespace, or of all; on a node, or wherever they are."""
        place = f"/namespaces/{namespace}" if namespace else ""
        params = {"fieldSelector": f"spec.nodeName={node}"} if node else None
        return self._list(f"/api/v1{place}/pods", Pod, params=params)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """A pod, or None."""
        return self._find(f"/api/v1/namespaces/{namespace}/pods/{name}", Pod.model_validate_json)

    def pull_secret(self, namespace: str, name: str) -> PullSecret | None:
        """A Secret that pods pull images with, for a copy of it; None where there is none, or one of another type."""
        secret = self._find(f"/api/v1/namespaces/{namespace}/secrets/{name}", PullSecret.model_validate_json)
        return secret if secret and secret.type in _PULL_TYPES else None

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
        objection = objection_of(response)
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
        attributes = {
            "verb": verb,
            "resource": name,
            "subresource": subresource,
            "group": group,
            "namespace": namespace,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        # Admission webhooks are asked about this too, where one is for every kind.
        return self._read(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            AccessReview.model_validate_json,
            method="POST",
            body=json.dumps(review),
            timeout_seconds=ADMISSION_SECONDS,
        ).allowed

    def create(self, manifest: Mapping[str, Any]) -> Objection | None:
        """Create an object that is not there yet.

        Returns:
            None where it was created, else what the API server or its admission has against it.

        Raises:
            ClusterError: if the API server can't be asked.
        """
        path = object_path(manifest).rpartition("/")[0]
        body = json.dumps(manifest)
        response = self._send(path, method="POST", body=body, timeout_seconds=ADMISSION_SECONDS)
        return self._verdict(response, f"POST {path}")

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
        path = object_path(manifest).rpartition("/")[0]
        response = self._send(
            path,
            method="POST",
            params={"dryRun": "All"},
            headers={"Impersonate-User": user},
            body=json.dumps(manifest),
            timeout_seconds=ADMISSION_SECONDS,
        )
        return self._verdict(response, f"POST {path}") or dict(response.json())

    def delete(self, manifest: Mapping[str, Any]) -> None:
        """Delete an object, which may be gone already, or be on its way: some answer a conflict to that.

        Raises:
            ClusterError: if it is refused.
        """
        path = object_path(manifest)
        objection = objection_of(self._send(path, method="DELETE", timeout_seconds=ADMISSION_SECONDS))
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
        objection = objection_of(
            self._send(
                path,
                method="DELETE",
                body=json.dumps(options | {"propagationPolicy": "Background"}),
                timeout_seconds=ADMISSION_SECONDS,
            )
        )
        return None if objection is None or objection.code == httpx2.codes.NOT_FOUND else objection

    def apply(self, manifest: Mapping[str, Any], *, manager: str) -> None:
        """Server-side apply, by force.

        Raises:
            ClusterError: if it is refused.
        """
        response = self._send(
            object_path(manifest),
            params={"fieldManager": manager, "force": "true"},
            body=json.dumps(manifest),
            timeout_seconds=ADMISSION_SECONDS,
        )
        if objection := objection_of(response):
            # In its own words: admission may have refused, and a right is not all that can be missing.
            raise ClusterError(f"The cluster at {self.server} does not write {key(manifest)}: {objection.message}")

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
            accept=METADATA.format(""),
            body=json.dumps(manifest),
            timeout_seconds=ADMISSION_SECONDS,
        )
        return objection_of(response)

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
            timeout_seconds=ADMISSION_SECONDS,
        )
        return objection_of(response)

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
            return self._list(path, kind, params=params, accept=METADATA.format("List") if metadata else JSON)
        except NotFoundError:
            if path == _NODES:
                # Every Kubernetes has them: of what answers here, nothing that is read means anything.
                raise
            return []

    def kinds(self) -> list[DiscoveredGroup]:
        """Every group of the API server with its versions, the preferred one first, and their kinds."""
        pages = [
            self._read(root, page_of(DiscoveredGroup).model_validate_json, accept=_DISCOVERY)
            for root in ("/api", "/apis")
        ]
        return [group for page in pages for group in page.items or []]

    def deployments(self, *, namespace: str = "") -> list[Deployment]:
        """The Deployments of a namespace, or of all."""
        place = f"/namespaces/{namespace}" if namespace else ""
        return self._list(f"/apis/apps/v1{place}/deployments", Deployment)

    def daemon_sets(self, *, namespace: str) -> list[DaemonSet]:
        """The DaemonSets of a namespace."""
        return self._list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets", DaemonSet)

    def cluster_policies(self) -> list[Installed]:
        """The GPU Operator's ClusterPolicies, whoever made them; none where their kind does not exist."""
        return self.objects("/apis/nvidia.com/v1/clusterpolicies", Installed)

    def gpu_clusters(self) -> list[Installed]:
        """The GPU Operator's GPUClusters, whoever made them; none where their kind does not exist."""
        return self.objects("/apis/nvidia.com/v1alpha1/gpuclusters", Installed)

    def has_runtime_class(self, name: str) -> bool:
        """Whether a RuntimeClass of this name exists."""
        return self._find(f"/apis/node.k8s.io/v1/runtimeclasses/{name}", Answer.model_validate_json) is not None

    def has_mutating_webhook(self, name: str) -> bool:
        """Whether a MutatingWebhookConfiguration of this name exists."""
        path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}"
        return self._find(path, Answer.model_validate_json) is not None

    def mutating_policy_versions(self) -> frozenset[str]:
        """The versions of admissionregistration.k8s.io that have MutatingAdmissionPolicy; empty where none has."""
        served = {
            version: self._find(f"/apis/admissionregistration.k8s.io/{version}", Resources.model_validate_json)
            for version in POLICIES_SINCE
        }
        return frozenset(
            version
            for version, group in served.items()
            if group is not None and any(resource.name == "mutatingadmissionpolicies" for resource in group.resources)
        )

    def has_kind(self, version: str, plural: str) -> bool:
        """Whether the API server knows a kind, as `scheduling.run.ai/v2` and `queues`."""
        group = self._find(f"/apis/{version}", Resources.model_validate_json)
        return group is not None and any(resource.name == plural for resource in group.resources)

    def helm_revisions(self, namespace: str, release: str) -> list[HelmRevision]:
        """The stored revisions of a Helm release. Only metadata is asked for: the content holds the chart's values."""
        return self._list(
            f"/api/v1/namespaces/{namespace}/secrets",
            HelmRevision,
            params={"labelSelector": f"owner=helm,name={release}"},
            accept=METADATA.format("List"),
        )


def plural(kind: str) -> str:
    """A kind's plural, formed as Kubernetes itself guesses it."""
    lower = kind.lower()
    if lower.endswith("s"):
        return f"{lower}es"
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def object_path(manifest: Mapping[str, Any]) -> str:
    """Where the API server has an object."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    group = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{group}{namespace}/{plural(manifest['kind'])}/{metadata['name']}"
