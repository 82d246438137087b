"""A cluster of objects by path, and a `pulumi` whose state is a file: what a rollback works on."""

import base64
import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from cluster.access.client import Cluster
from manifests.ownership import field_manager
from operations import engine
from operations.rollback.reading import StackInCluster
from operations.target import Target
from testbed.stacks import Json, jetson, parse
from tests.support.api_server import UID, connected

STACK = "kai-anywhere/jetson"
_URN = "urn:pulumi:jetson::kai-anywhere::kai-anywhere:index:KaiAnywhere$"
_PULUMI = """#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >> calls
case "$1" in
    stack) if [ "$2" = export ]; then cat state.json; fi ;;
    refresh)
        if [ -e locked ]; then echo "error: the stack is currently locked by 1 lock(s)." >&2; exit 255; fi
        cp settled.json state.json ;;
    destroy)
        if [ -e fails ]; then echo "error: the provider gave up" >&2; exit 255; fi
        echo '{"deployment": {}}' > state.json ;;
esac
"""
_Group = tuple[str, str, tuple[tuple[str, str], ...]]
_GROUPS: dict[str, list[_Group]] = {
    "/api": [("", "v1", (("namespaces", "Namespace"), ("secrets", "Secret"), ("pods", "Pod")))],
    "/apis": [
        ("rbac.authorization.k8s.io", "v1", (("clusterroles", "ClusterRole"),)),
        ("nvidia.com", "v1", (("clusterpolicies", "ClusterPolicy"),)),
        ("batch", "v1", (("jobs", "Job"),)),
        ("networking.k8s.io", "v1", (("ingresses", "Ingress"),)),
    ],
}
_NAMESPACED = {"Secret", "Pod", "Job", "Ingress"}
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def owned(*resources: str, labels: Json | None = None) -> list[Json]:
    """Managed fields of resources of our stack."""
    fields: Json = {"f:metadata": {"f:labels": {f"f:{name}": {} for name in labels or {}}}}
    return [{"manager": field_manager(STACK, resource), "fieldsV1": fields} for resource in resources]


def of_helm(release: str) -> Json:
    """What Helm writes on an object of a release in the namespace of its name."""
    marks = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": release}
    return {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": marks}


@dataclass
class World:
    """The cluster and the stack's state.

    Attributes:
        folder: of `pulumi` and the state.
        objects: by path.
        deleted: paths, in their order.
        applied: the manager and path of each server-side apply.
        settings: of the stack.
        stubborn: paths of objects that stay when they are deleted.
    """

    folder: Path
    objects: dict[str, Json] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    applied: list[tuple[str, str]] = field(default_factory=list)
    settings: Json = field(default_factory=jetson)
    stubborn: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        program = self.folder / "pulumi"
        program.write_text(_PULUMI, encoding="utf-8")
        program.chmod(0o755)
        (self.folder / "Pulumi.yaml").write_text("name: kai-anywhere\n", encoding="utf-8")
        self.remember([])
        self.put("/api/v1/namespaces/kube-system", uid=UID)
        self.put("/api/v1/nodes/jetson-1")

    def put(self, path: str, *, uid: str = "", spec: Json | None = None, **metadata: Any) -> Json:  # noqa: ANN401 - JSON
        """Make an object under its path."""
        *place, name = path.strip("/").split("/")
        there = {"namespace": place[place.index("namespaces") + 1]} if "namespaces" in place[:-1] else {}
        identity = {"name": name, "uid": uid or f"uid-{len(self.objects)}", "resourceVersion": "7"}
        made: Json = {"metadata": identity | there | metadata} | ({"spec": spec} if spec else {})
        self.objects[path] = made
        return made

    def revision(
        self, release: str, version: int, status: str, *, namespace: str = "", hooks: Iterable[Json] = ()
    ) -> str:
        """A revision as the provider's Helm stores it; its data is asked for alone, for its hooks."""
        namespace = namespace or release
        path = f"/api/v1/namespaces/{namespace}/secrets/sh.helm.release.v1.{release}.v{version}"
        labels = {"owner": "helm", "name": release, "version": str(version), "status": status}
        fields = [{"manager": "pulumi-kubernetes"}]
        made = self.put(path, labels=labels, creationTimestamp="2026-11-23T12:00:00Z", managedFields=fields)
        stored = {"config": {"password": "secret"}, "hooks": [{"manifest": json.dumps(hook)} for hook in hooks]}
        packed = base64.b64encode(gzip.compress(json.dumps(stored).encode()))
        made["data"] = {"release": base64.b64encode(packed).decode()}
        return path

    def revision_by_hand(self, release: str, version: int, status: str) -> str:
        """The same as Helm itself stores it."""
        path = self.revision(release, version, status)
        self.objects[path]["metadata"]["managedFields"] = [{"manager": "helm"}]
        return path

    def definition(self, group: str, plural: str, manager: str = "pulumi-resource-kubernetes") -> str:
        """A CustomResourceDefinition."""
        path = f"{KINDS}/{plural}.{group}"
        versions = [{"name": "v1", "storage": True, "served": True}]
        spec = {"group": group, "names": {"plural": plural}, "versions": versions}
        made = self.put(path, spec=spec, managedFields=[{"manager": manager}])
        made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        return path

    def remember(self, resources: Iterable[Json], *, pending: Iterable[Json] = (), cluster: str | None = UID) -> None:
        """Write the state: what the stack has, beside itself and its provider."""
        listed = [*resources]
        own: list[Json] = [{"urn": f"{_URN}pulumi:pulumi:Stack::kai-anywhere-jetson", "type": "pulumi:pulumi:Stack"}]
        if cluster:
            provider = {"type": "pulumi:providers:kubernetes", "outputs": {"clusterIdentifier": cluster}}
            own.append({"urn": f"{_URN}pulumi:providers:kubernetes::kai-anywhere-cluster"} | provider)
        operations = [{"resource": urn, "type": "creating"} for urn in pending]
        settled: Json = {"resources": own + listed} if listed or operations else {}
        state: Json = settled | {"pending_operations": operations}
        for name, deployment in (("settled.json", settled), ("state.json", state)):
            (self.folder / name).write_text(json.dumps({"deployment": deployment}), encoding="utf-8")

    @property
    def calls(self) -> list[str]:
        """The commands of pulumi's that change something."""
        file = self.folder / "calls"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [line.split()[0] for line in lines if not line.startswith("stack ")]

    @property
    def target(self) -> Target:
        """The stack."""
        path = f"{self.folder}{os.pathsep}{os.environ['PATH']}"
        return Target("jetson", parse(self.settings), self.folder, {"PATH": path}, ())

    def connect(self) -> Cluster:
        """The program's client."""
        return connected(self._answer)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path in _GROUPS:
            return httpx2.Response(200, json={"items": list(map(_group, _GROUPS[path]))})
        if request.method == "DELETE":
            return self._delete(path, json.loads(request.content or b"{}"))
        if request.method == "PATCH":
            self.applied.append((request.url.params["fieldManager"], path))
            self._let_go(path, request.url.params["fieldManager"])
            return httpx2.Response(200, json={})
        if named := request.url.params.get("fieldSelector", "").removeprefix("metadata.name="):
            made = self.objects.get(f"{path}/{named}")
            return httpx2.Response(200, json={"items": [made] if made else []})
        if "secrets" in path.split("/"):
            assert "PartialObjectMetadata" in request.headers["Accept"], "the content of a Secret is nobody's business"
        if path in self.objects:
            return httpx2.Response(200, json=self.objects[path])
        selector = request.url.params.get("labelSelector", "")
        manifests = [
            manifest for place, manifest in self.objects.items() if _lists(path, place) and _selects(selector, manifest)
        ]
        return (
            httpx2.Response(200, json={"items": manifests})
            if manifests or path.endswith(_LISTS)
            else httpx2.Response(404, json={})
        )

    def _delete(self, path: str, options: Json) -> httpx2.Response:
        there = self.objects.get(path)
        if there is None:
            return httpx2.Response(404, json={})
        still = options.get("preconditions", {})
        metadata = there["metadata"]
        if any(still.get(key, metadata[key]) != metadata[key] for key in ("uid", "resourceVersion")):
            return httpx2.Response(409, json={"message": "the object has been modified"})
        self.deleted.append(path)
        if path not in self.stubborn:
            del self.objects[path]
        return httpx2.Response(200, json={})

    def _let_go(self, path: str, manager: str) -> None:
        metadata = self.objects[path]["metadata"]
        metadata["managedFields"] = [
            managed_field for managed_field in metadata.get("managedFields", ()) if managed_field["manager"] != manager
        ]


_LISTS = ("/secrets", "/pods", "/nodes", "/namespaces", "/deployments")
"""Lists of kinds that every cluster has: empty, not unknown."""


def _group(group: _Group) -> Json:
    name, version, kinds = group
    resources = [
        {
            "resource": plural,
            "responseKind": {"kind": kind},
            "scope": "Namespaced" if kind in _NAMESPACED else "Cluster",
            "verbs": ["list", "delete"],
        }
        for plural, kind in kinds
    ]
    versions = [{"version": version, "resources": resources}]
    return {"metadata": {"name": name}, "versions": versions} if name else {"metadata": {}, "versions": versions}


def _lists(path: str, place: str) -> bool:
    """Whether a list has an object: its namespace's, or that of all."""
    *parents, plural, _ = place.split("/")
    everywhere = parents[: parents.index("namespaces")] if "namespaces" in parents else parents
    return path in {"/".join([*parents, plural]), "/".join([*everywhere, plural])}


def _selects(selector: str, manifest: Json) -> bool:
    labels = manifest["metadata"].get("labels", {})
    if "status in (" in selector:
        return labels.get("owner") == "helm" and str(labels.get("status")).startswith("pending-")
    return all(labels.get(term.partition("=")[0]) == term.partition("=")[2] for term in selector.split(",") if term)


def release(name: str) -> Json:
    """A Helm release as the state has it."""
    place = {"name": name, "namespace": name}
    kind = "kubernetes:helm.sh/v3:Release"
    return {"urn": f"{_URN}{kind}::{name}", "type": kind, "inputs": place, "outputs": place}


def namespace(name: str) -> Json:
    """A namespace of ours as the state has it."""
    written = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    kind = "kubernetes:core/v1:Namespace"
    return {"urn": f"{_URN}{kind}::{name}", "type": kind, "inputs": written, "outputs": {"__inputs": written}}


def stack_in(world: World) -> StackInCluster:
    """What the command works on."""
    return StackInCluster(world.target, world.connect(), engine.checkpoint(world.target), UID)
