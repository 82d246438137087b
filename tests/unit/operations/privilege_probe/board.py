"""A cluster with one Jetson behind the real client: its pods end as a script says, by rung."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx2

from cluster.access.client import Cluster
from operations.privilege_probe.ladder import NAMESPACE
from testbed.stacks import Json
from tests.support.api_server import connected, node


def jetson(name: str = "jetson-1", *, gpus: int = 1, ready: str = "True") -> Json:
    """The node as the API server shows it."""
    manifest: Json = node(
        name, gpus=gpus, labels={"nvidia.com/gpu.deploy.container-toolkit": "false", "other": "label"}
    )
    manifest["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    manifest["status"]["nodeInfo"] |= {
        "kernelVersion": "6.8.12-tegra",
        "osImage": "Ubuntu 24.04.3 LTS",
        "containerRuntimeVersion": "containerd://2.1.4",
    }
    return manifest


@dataclass
class Board:
    """The cluster.

    Attributes:
        script: what comes of a pod, by the rung's name.
        nodes: of the cluster.
        objects: what there is, by path.
        made: every object that was created, in order.
        levels: the Pod Security level of the namespace when each pod came.
        deleted: the paths that were deleted, in order.
        before: is called before each request is answered.
        stays: paths that a deletion does not remove.
        deletes: the status and message that a deletion of these paths is refused with.
        lacking: what the user may not do, as verb and resource.
        unreadable: what the API server says in place of a log.
        logged_out: whether no login is accepted.
    """

    script: Mapping[str, Json]
    nodes: list[Json] = field(default_factory=lambda: [jetson()])
    objects: dict[str, Json] = field(default_factory=dict)
    made: list[Json] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    before: Callable[[httpx2.Request], None] = lambda _: None
    stays: frozenset[str] = frozenset()
    deletes: dict[str, tuple[int, str]] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()
    unreadable: str = ""
    logged_out: bool = False

    def connect(self) -> Cluster:
        """The program's client."""
        return connected(self._answer)

    @property
    def pods(self) -> list[Json]:
        """The pods that were made."""
        return [manifest for manifest in self.made if manifest["kind"] == "Pod"]

    @property
    def changes(self) -> int:
        """How many objects were made or deleted."""
        return len(self.made) + len(self.deleted)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.before(request)
        if self.logged_out:
            return _status(401, "Unauthorized")
        path = request.url.path
        match request.method:
            case "POST" if path.endswith("/selfsubjectaccessreviews"):
                asked = json.loads(request.content)["spec"]["resourceAttributes"]
                what = f"{asked['verb']} {asked['resource']}{'/' if asked['subresource'] else ''}{asked['subresource']}"
                return httpx2.Response(201, json={"status": {"allowed": what not in self.lacking}})
            case "POST":
                return self._create(path, json.loads(request.content))
            case "PATCH":
                self.objects[path] |= json.loads(request.content)
                return httpx2.Response(200, json={})
            case "DELETE":
                return self._delete(path)
            case _:
                return self._read(path, request.url.params)

    def _create(self, collection: str, content: Json) -> httpx2.Response:
        path = f"{collection}/{content['metadata']['name']}"
        if path in self.objects:
            return _status(409, "it exists already")
        self.made.append(copy.deepcopy(content))
        if content["kind"] == "Pod":
            labels = self.objects[f"/api/v1/namespaces/{NAMESPACE}"]["metadata"]["labels"]
            self.levels.append(labels["pod-security.kubernetes.io/enforce"])
            becomes = self.script[content["metadata"]["name"].removeprefix("probe-")]
            if "refused" in becomes:
                return _status(becomes["code"], becomes["refused"])
            content["metadata"]["annotations"] = becomes.get("annotations", {})
            content["status"] = {"phase": becomes.get("phase", "Running")} | becomes.get("status", {})
            if "state" in becomes:
                content["status"]["containerStatuses"] = [{"imageID": "", "state": becomes["state"]}]
        self.objects[path] = content
        return httpx2.Response(201, json=content)

    def _delete(self, path: str) -> httpx2.Response:
        self.deleted.append(path)
        if path not in self.objects:
            return _status(404, "not found")
        if path in self.deletes:
            return _status(*self.deletes[path])
        if path not in self.stays:
            # What is in a namespace goes with it, of every group of the API.
            inside = f"{path.removeprefix('/api/v1')}/"
            self.objects = {at: manifest for at, manifest in self.objects.items() if at != path and inside not in at}
        return httpx2.Response(200, json={})

    def _read(self, path: str, params: httpx2.QueryParams) -> httpx2.Response:
        if path == "/api/v1/nodes":
            return httpx2.Response(200, json={"items": self.nodes})
        if path.endswith("/pods"):
            namespace = path.removeprefix("/api/v1").removesuffix("/pods")
            pods = [manifest for at, manifest in self.objects.items() if "/pods/" in at and namespace in at]
            return httpx2.Response(200, json={"items": pods})
        if path.endswith("/log"):
            name = path.split("/")[-2].removeprefix("probe-")
            text = self.script[name].get("log", "")
            return _status(500, self.unreadable) if self.unreadable else httpx2.Response(200, text=text)
        if path.endswith("/events"):
            name = params["fieldSelector"].split(",")[0].removeprefix("involvedObject.name=probe-")
            return httpx2.Response(
                200, json={"items": [{"message": event} for event in self.script[name].get("events", [])]}
            )
        if path in self.objects:
            content = self.objects[path]
            content["metadata"].setdefault("uid", "1")
            return httpx2.Response(200, json=content)
        return _status(404, "not found")


def _status(code: int, message: str) -> httpx2.Response:
    return httpx2.Response(code, json={"kind": "Status", "code": code, "message": message})
