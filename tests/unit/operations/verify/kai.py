"""A cluster whose pods with a share of a GPU run as far as a script says."""

from dataclasses import dataclass, field

import httpx2

from cluster.access.client import Cluster
from operations.verify.commands import NAMESPACE
from testbed.shared_gpus import reservation
from testbed.stacks import Json
from tests.support.api_server import connected, node

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
RESERVATIONS = "/api/v1/namespaces/kai-resource-reservation/pods"
HOME = f"/api/v1/namespaces/{NAMESPACE}"


def jetson(name: str = "jetson-1", memory_mib: int = 131072) -> Json:
    """A node whose GPU memory is labelled."""
    made: Json = node(name)
    made["metadata"]["labels"] = {"nvidia.com/gpu.memory": str(memory_mib), "nvidia.com/gpu.count": "1"}
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def sharing_pod(name: str, mib: int, node_name: str = "jetson-1") -> Json:
    """Somebody's pod that has a share already."""
    return {
        "metadata": {
            "name": name,
            "namespace": "robots",
            "annotations": {"gpu-memory": str(mib)},
            "labels": {"runai-gpu-group": "g1"},
        },
        "spec": {"schedulerName": "kai-scheduler", "nodeName": node_name, "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }


@dataclass
class Kai:
    """The cluster.

    Attributes:
        runs: how many of the pods run; the others stay Pending with a reason.
        nodes: of the cluster.
        there: pods of others.
        queues: KAI's.
        objects: what was made and is there, by path.
        made: what was made, in order.
        refuses: what the API server says to pods, in place of taking them.
        forbids: what the user may not do, as verb and resource.
        addition: the phase of the vector addition's pod.
        log: of every pod.
        group: the GPU group of the pods that run; empty where the binder gave them none.
        holders: the reservation pods; None where the user may not see them.
    """

    runs: int = 4
    nodes: list[Json] = field(default_factory=lambda: [jetson()])
    there: list[Json] = field(default_factory=list)
    queues: list[Json] = field(default_factory=list)
    objects: dict[str, Json] = field(default_factory=dict)
    made: list[Json] = field(default_factory=list)
    refuses: str = ""
    forbids: frozenset[str] = frozenset()
    addition: str = "Succeeded"
    log: str = ""
    group: str = "g1"
    holders: list[Json] | None = field(default_factory=lambda: [reservation("g1")])

    def connect(self) -> Cluster:
        """The program's client."""
        return connected(self._answer)

    @property
    def pods(self) -> list[Json]:
        """The pods that were made."""
        return [manifest for manifest in self.made if manifest["kind"] == "Pod"]

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        match request.method:
            case "POST" if path.endswith("/selfsubjectaccessreviews"):
                asked = httpx2.Response(200, content=request.content).json()["spec"]["resourceAttributes"]
                allowed = f"{asked['verb']} {asked['resource']}" not in self.forbids
                return httpx2.Response(201, json={"status": {"allowed": allowed}})
            case "POST":
                return self._create(path, httpx2.Response(200, content=request.content).json())
            case "DELETE":
                self.objects = {
                    at: manifest for at, manifest in self.objects.items() if not f"{at}/".startswith(f"{path}/")
                }
                return httpx2.Response(200, json={})
            case _:
                return self._read(path)

    def _create(self, collection: str, content: Json) -> httpx2.Response:
        if content["kind"] == "Pod" and self.refuses:
            return _status(403, self.refuses)
        path = f"{collection}/{content['metadata']['name']}"
        if path in self.objects:
            return _status(409, "exists")
        self.made.append(content)
        if content["kind"] == "Pod":
            addition = content["metadata"]["name"] == "vector-addition"
            running = addition or len(self.pods) <= self.runs
            content["status"] = {"phase": self.addition if addition else "Running" if running else "Pending"}
            if running:
                content["spec"]["nodeName"] = content["spec"]["nodeSelector"]["kubernetes.io/hostname"]
                content["metadata"]["labels"] |= {"runai-gpu-group": self.group} if self.group else {}
            else:
                said = {
                    "type": "PodScheduled",
                    "status": "False",
                    "message": "node-group(s) didn't have enough resource",
                }
                content["status"]["conditions"] = [said]
        self.objects[path] = content
        return httpx2.Response(201, json=content)

    def _read(self, path: str) -> httpx2.Response:
        own = [manifest for at, manifest in self.objects.items() if at.startswith(f"{PODS}/")]
        lists = {"/api/v1/nodes": self.nodes, "/api/v1/pods": [*self.there, *own], PODS: own, QUEUES: self.queues}
        if path == RESERVATIONS:
            if self.holders is None:
                return _status(403, 'pods is forbidden: User "tenant" cannot list resource "pods"')
            return httpx2.Response(200, json={"items": self.holders})
        if path in lists:
            return httpx2.Response(200, json={"items": lists[path]})
        if path.endswith("/log"):
            return httpx2.Response(200, text=self.log)
        if path in self.objects:
            content = self.objects[path]
            content["metadata"].setdefault("uid", "1")
            return httpx2.Response(200, json=content)
        return _status(404, "not found")


def _status(code: int, message: str) -> httpx2.Response:
    return httpx2.Response(code, json={"kind": "Status", "code": code, "message": message})
