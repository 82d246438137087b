"""A real API server that shows a `World`: what differs from the world that it showed before is written anew.

Nobody else writes there, so nodes, pods and statuses are what the script says, and stay so.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import httpx2
import yaml

import simulator
from cluster.access.client import Cluster, object_path
from manifests.ownership import field_manager
from operations.doctor.facts import SETTLING, Facts
from simulator import ControlPlane
from testbed.inventory import connect
from testbed.simulated import start_older_beside
from testbed.stacks import Json
from testbed.waiting import eventually
from tests.support.api_server import Answer, ApiServer, certificate, running
from tests.support.doctor import LATER, STACK, World, list_path

_FINALIZER: Final = "kai-anywhere.io/held"
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_AT_ONCE: Final = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
_NOBODY: Final = {"matchLabels": {"kai-anywhere.io/judged": "true"}}
_OF_THE_SERVER: Final = frozenset({"creationTimestamp", "deletionTimestamp", "managedFields"})
"""Metadata that the API server writes, whatever a manifest says."""
_DEFINITION: Final = "CustomResourceDefinition"
_ORDER: Final = (_DEFINITION, "Namespace", "ServiceAccount", "RuntimeClass", "Node")
"""What is made before the rest, which needs it, and goes after it."""
_CHARTS: Final = ("kai-scheduler", "gpu-operator")
_OTHER_KINDS: Final = (
    ("nvidia.com", "v1alpha1", "GPUCluster", "Cluster"),
    ("monitoring.coreos.com", "v1", "Prometheus", "Namespaced"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "Namespaced"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "Namespaced"),
)
"""Kinds that no stand-in chart brings."""


@dataclass
class DoctorCluster:
    """The API server, and what was written to it.

    Attributes:
        control_plane: of which it is.
        api: as its administrator.
        connection: by which doctor reads.
        kubelet: who is asked for the logs of every pod.
        written: manifests by path.
    """

    control_plane: ControlPlane
    api: httpx2.Client
    connection: Cluster
    kubelet: ApiServer
    written: dict[str, Json] = field(default_factory=dict)

    def show(self, world: World) -> Facts:
        """Be equal to a world, and read it."""
        assert not world.refused, "an administrator is refused nothing"
        assert world.minor == World.minor, "the version is the API server's own"
        manifests = {object_path(manifest): manifest for manifest in self._manifests(world)}
        self._remove(path for path, written in self.written.items() if _is_stale(written, manifests.get(path)))
        young = self._make_all(_classes(manifests.values()) | manifests)
        for path, manifest in manifests.items():
            if _is_terminating(manifest):
                # Its controller is not here to empty it, so it stays in this phase.
                self._ask("DELETE", path)
        self._remove(self.written.keys() - manifests.keys())
        self.kubelet.answers = {_log_path(path): Answer(200, text.encode()) for path, text in world.texts.items()}
        if world.policies:
            return _aged(world.read(self.connection), young)
        with start_older_beside(self.control_plane) as older, closing(Cluster.open(str(older))) as connection:
            return _aged(world.read(connection), young)

    def _manifests(self, world: World) -> Iterator[Json]:
        """A world's objects, and what they need here."""
        yield from (definition for definition in _DEFINITIONS if _is_known(world, definition))
        manifests = list(world.objects().values())
        there = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Namespace"}
        places = {manifest["metadata"].get("namespace", "default") for manifest in manifests}
        for place in sorted(places - there - {"default"}):
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}
        for place in sorted(places):
            # The controller that makes it everywhere is not here, and the API server takes no pod without it.
            yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": place}}
        for manifest in manifests:
            yield self._reachable(manifest) if manifest["kind"] == "Node" else _harmless(manifest)

    def _reachable(self, node: Json) -> Json:
        """A node whose kubelet is ours."""
        port = int(self.kubelet.url.rpartition(":")[2])
        where = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        return node | {"status": node["status"] | where}

    def _make_all(self, manifests: Mapping[str, Json]) -> list[datetime]:
        """Make what is not there, and say when what is younger than everything else was made."""
        missing = {path: manifest for path, manifest in manifests.items() if path not in self.written}
        young = [path for path, manifest in missing.items() if _is_young(manifest)]
        definitions = [path for path, manifest in missing.items() if manifest["kind"] == _DEFINITION]
        for path in definitions:
            self._make(path, missing[path])
        for path in definitions:
            eventually(partial(self._is_served, missing[path]))
        rest = missing.keys() - set(young) - set(definitions)
        for path in sorted(rest, key=lambda path: (_rank(missing[path]), path)):
            self._make(path, missing[path])
        if young:
            # Times are told in whole seconds: what is made now is of a later one.
            time.sleep(1.1)
        return [self._make(path, missing[path]) for path in young]

    def _make(self, path: str, manifest: Json) -> datetime:
        """Make an object that is not there, and say when it was made."""
        kind, said = manifest["kind"], manifest["metadata"]
        metadata = {name: value for name, value in said.items() if name not in _OF_THE_SERVER}
        by_others = {owner["manager"]: _labels_of(owner, manifest) for owner in said.get("managedFields", [])}
        if labels := said.get("labels"):
            theirs = {name for labels_of_one in by_others.values() for name in labels_of_one}
            metadata["labels"] = {name: value for name, value in labels.items() if name not in theirs}
        if "deletionTimestamp" in said:
            metadata["finalizers"] = [_FINALIZER]
        # The labels of a node that is well are the stack's.
        params = {"fieldManager": field_manager(STACK, "labels")} if kind == "Node" else None
        body = {name: value for name, value in manifest.items() if name != "status"} | {"metadata": metadata}
        made = self._ask("POST", path.rpartition("/")[0], body, params=params)
        self.written[path] = manifest
        if manifest.get("status") and kind != "Namespace":
            self._ask("PATCH", f"{path}/status", {"status": manifest["status"]}, headers=_MERGE)
        if kind == "Node":
            # With its taint the API server keeps pods away until a controller has seen the node.
            self._ask("PATCH", path, {"spec": {"taints": None}}, headers=_MERGE)
        for other, labels_of_one in by_others.items():
            same = {"apiVersion": manifest["apiVersion"], "kind": kind}
            body = same | {"metadata": {"name": said["name"], "labels": labels_of_one}}
            self._ask("PATCH", path, body, headers=_APPLY, params={"fieldManager": other})
        if "deletionTimestamp" in said:
            self._ask("DELETE", path)
        return datetime.fromisoformat(made["metadata"]["creationTimestamp"])

    def _remove(self, paths: Iterable[str]) -> None:
        for path in sorted(paths, key=lambda path: (_rank(self.written[path]), path), reverse=True):
            manifest = self.written.pop(path)
            if "deletionTimestamp" in manifest["metadata"]:
                self._ask("PATCH", path, {"metadata": {"finalizers": None}}, headers=_MERGE)
                continue
            self._ask("DELETE", path)
            if manifest["kind"] == "Namespace":
                # What is in it stays, and is there again with the next namespace of this name.
                empty = {"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": []}}
                self._ask("PUT", f"{path}/finalize", empty | {"metadata": {"name": manifest["metadata"]["name"]}})
            if manifest["kind"] == _DEFINITION:
                eventually(partial(self._is_gone, path))
                eventually(partial(self._is_gone, _served_path(manifest)))

    def _is_served(self, definition: Json) -> bool:
        return self.api.get(_served_path(definition)).is_success

    def _is_gone(self, path: str) -> bool:
        return self.api.get(path).status_code == httpx2.codes.NOT_FOUND

    def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Json:
        params = _AT_ONCE if method == "DELETE" else params
        answers: list[httpx2.Response] = []

        def is_answered() -> bool:
            answers.append(self.api.request(method, path, json=body, headers=headers, params=params))
            # Admission may see the namespace of before for a moment, where one of the same name was deleted just now.
            return '"reason":"NamespaceTerminating"' not in answers[-1].text

        eventually(is_answered, within_seconds=30)
        assert answers[-1].is_success, f"{method} {path}: {answers[-1].text}"
        answer: Json = answers[-1].json()
        return answer


@contextmanager
def doctor_cluster(control_plane: ControlPlane) -> Iterator[DoctorCluster]:
    """Connect to an API server that nobody else writes to."""
    with (
        connect(control_plane) as api,
        closing(Cluster.open(str(control_plane.kubeconfig))) as connection,
        running(certificate()[0]) as kubelet,
    ):
        yield DoctorCluster(control_plane, api, connection, kubelet)


def _aged(facts: Facts, young: list[datetime]) -> Facts:
    """The facts an hour later, when nothing is young any more; else when nothing but these is."""
    taken = facts.snapshot.taken + timedelta(hours=1)
    if young:
        taken = max(young) + SETTLING - timedelta(seconds=0.5)
    return replace(facts, snapshot=replace(facts.snapshot, taken=taken))


def _is_stale(written: Json, manifest: Json | None) -> bool:
    """Whether what is written goes before anything is made: what is needed to make something goes afterwards."""
    if manifest is None:
        return written["kind"] not in _ORDER
    return written != manifest or _is_young(manifest) or _is_terminating(manifest)


def _is_young(manifest: Json) -> bool:
    return bool(manifest["metadata"].get("creationTimestamp") == LATER)


def _is_terminating(manifest: Json) -> bool:
    return bool(manifest["kind"] == "Namespace" and manifest.get("status", {}).get("phase") == "Terminating")


def _rank(manifest: Json) -> int:
    return _ORDER.index(manifest["kind"]) if manifest["kind"] in _ORDER else len(_ORDER)


def _classes(manifests: Iterable[Json]) -> dict[str, Json]:
    """The RuntimeClasses that pods name: where one is gone, it was there when the pods were made."""
    pods = [manifest for manifest in manifests if manifest["kind"] == "Pod"]
    names = {pod["spec"]["runtimeClassName"] for pod in pods if "runtimeClassName" in pod["spec"]}
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    classes = [{**kind, "metadata": {"name": name}, "handler": name} for name in sorted(names)]
    return {object_path(manifest): manifest for manifest in classes}


def _harmless(manifest: Json) -> Json:
    """What would judge a world's own objects is for none of them: no webhook has anybody who answers for it."""
    kind = manifest["kind"]
    if kind in {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}:
        webhooks = [webhook | {"objectSelector": _NOBODY} for webhook in manifest.get("webhooks", [])]
        return manifest | {"webhooks": webhooks}
    if kind in {"MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"}:
        matches = manifest["spec"].get("matchResources", {}) | {"objectSelector": _NOBODY}
        return manifest | {"spec": manifest["spec"] | {"matchResources": matches}}
    return manifest


def _labels_of(owner: Json, manifest: Json) -> dict[str, str]:
    """The labels that a field manager writes."""
    names = {path.removeprefix("f:") for path in owner["fieldsV1"]["f:metadata"]["f:labels"]}
    return {name: value for name, value in manifest["metadata"]["labels"].items() if name in names}


def _log_path(path: str) -> str:
    """Where the API server asks a kubelet for a log that it is asked for."""
    *_, namespace, _, pod, last = path.split("/")
    assert last == "log", f"nothing but logs is text here: {path}"
    return f"/containerLogs/{namespace}/{pod}/main"


def _definition(group: str, version: str, kind: str, scope: str) -> Json:
    """A definition that takes everything."""
    plural = list_path(version, kind).rpartition("/")[2]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served: dict[str, Any] = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": _DEFINITION,
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [served | {"schema": {"openAPIV3Schema": anything}}],
        },
    }


def _definitions() -> Iterator[Json]:
    for chart in _CHARTS:
        for file in sorted((simulator.chart_path(chart) / "crds").glob("*.yaml")):
            yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))
    for kind in _OTHER_KINDS:
        yield _definition(*kind)


_DEFINITIONS: Final = tuple(_definitions())


def _version(definition: Json) -> str:
    spec = definition["spec"]
    return f"{spec['group']}/{spec['versions'][0]['name']}"


def _is_known(world: World, definition: Json) -> bool:
    return world.knows(_version(definition), definition["spec"]["names"]["kind"])


def _served_path(definition: Json) -> str:
    return f"/apis/{_version(definition)}/{definition['spec']['names']['plural']}"
