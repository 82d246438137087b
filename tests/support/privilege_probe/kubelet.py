"""A Jetson on a real API server whose kubelet follows a script.

KWOK and the simulator's operators leave the node alone: it lacks their annotation.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2

from operations.privilege_probe.ladder import ACCOUNT
from simulator.nodes import SIMULATED, NodeKind, manifest
from testbed.stacks import Json
from tests.support.api_server import Answer, ApiServer, certificate, running

_MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass
class Kubelet:
    """It plays each pod of its node once, serves the logs, and lets go what is deleted.

    Attributes:
        api: the API server, as its administrator.
        node: its name.
        logs: where the API server asks for logs.
        script: what comes of a pod, by its name.
        pods: every pod that it was given, as the API server has it.
    """

    api: httpx2.Client
    node: str
    logs: ApiServer
    script: Mapping[str, Json] = field(default_factory=dict)
    pods: list[Json] = field(default_factory=list)

    def run(self, over: threading.Event) -> None:
        """Play pods until told to stop."""
        while not over.wait(0.05):
            listed = self.api.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={self.node}"})
            for pod in listed.raise_for_status().json()["items"]:
                if "deletionTimestamp" in pod["metadata"]:
                    self.api.delete(_path(pod), params={"gracePeriodSeconds": "0"})
                elif pod["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in self.pods}:
                    self.pods.append(pod)
                    self._play(pod, self.script[pod["metadata"]["name"]])

    def _play(self, pod: Json, becomes: Json) -> None:
        metadata, [container] = pod["metadata"], pod["spec"]["containers"]
        name, namespace = metadata["name"], metadata["namespace"]
        log = Answer(200, becomes.get("log", "").encode())
        self.logs.answers[f"/containerLogs/{namespace}/{name}/{container['name']}"] = log
        for message in becomes.get("events", []):
            involved = {"kind": "Pod", "name": name, "namespace": namespace, "uid": metadata["uid"]}
            event = {"metadata": {"generateName": "kubelet-"}, "involvedObject": involved, "type": "Warning"}
            path = f"/api/v1/namespaces/{namespace}/events"
            self.api.post(path, json=event | {"reason": "Failed", "message": message}).raise_for_status()
        status = {"phase": becomes.get("phase", "Running")} | becomes.get("status", {})
        if "state" in becomes:
            shown = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
            status["containerStatuses"] = [shown | {"ready": False, "state": becomes["state"]}]
        self.api.patch(f"{_path(pod)}/status", json={"status": status}, headers=_MERGE).raise_for_status()
        if "annotations" in becomes:
            # The program writes them itself, with the rights of its pod's account.
            user = {"Impersonate-User": f"system:serviceaccount:{namespace}:{ACCOUNT}"}
            patch = {"metadata": {"annotations": becomes["annotations"]}}
            self.api.patch(_path(pod), json=patch, headers=_MERGE | user).raise_for_status()


@contextmanager
def scripted(api: httpx2.Client, node: str) -> Iterator[Kubelet]:
    """A new node, Ready and with one GPU, and its kubelet; both are gone afterwards."""
    with running(certificate()[0]) as logs:
        kubelet = Kubelet(api, node, logs)
        over = threading.Event()
        thread = threading.Thread(target=kubelet.run, args=(over,))
        api.post("/api/v1/nodes", json=_node(node, logs)).raise_for_status()
        thread.start()
        try:
            yield kubelet
        finally:
            over.set()
            thread.join()
            api.delete(f"/api/v1/nodes/{node}").raise_for_status()


def _node(name: str, logs: ApiServer) -> Json:
    made = manifest(name, NodeKind.JETSON)
    del made["metadata"]["annotations"][SIMULATED[0]]
    for quantities in (made["status"]["capacity"], made["status"]["allocatable"]):
        quantities["nvidia.com/gpu"] = "1"
    made["status"] |= {
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": int(logs.url.rpartition(":")[2])}},
    }
    return made


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
