"""A stand-in for kube-apiserver on loopback: real HTTP or HTTPS, answers by path, and what it was asked."""

import base64
import json
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import trustme
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig

from cluster.access.client import Cluster
from cluster.access.kubeconfig import ChosenContext
from testbed.http_server import Handler, serving

UID = "0b7c1a52-7a1e-4f5b-9b0f-5f0c3a3c9d11"
"""The identity of the healthy cluster."""

POLICIES = "/apis/admissionregistration.k8s.io/v1"
RUNTIME_CLASS = "/apis/node.k8s.io/v1/runtimeclasses/nvidia"
DEPLOYMENTS = "/apis/apps/v1/deployments"
KAI = "/apis/apps/v1/namespaces/kai-scheduler"
ADMISSION_SERVERS = tuple(
    f"/apis/apps/v1/namespaces/{namespace}/deployments/kai-anywhere-admission"
    for namespace in ("kai-anywhere", "gpu-admission")
)
RELEASES = {"gpu-operator": "/apis/apps/v1/namespaces/gpu-operator", "kai-scheduler": KAI}
"""Where the API server has the Deployments and DaemonSets of each release."""
BACKENDS = {"gvirtus-system": ("gpu-a", "gpu-b"), "remote-gpus": ("only",)}
"""Remote GPUs of the tests' stacks, by namespace."""
QUEUE = "/apis/scheduling.run.ai/v2/queues/default-parent-queue"
QUEUE_CONTROLLER = f"{KAI}/deployments/queue-controller"


@dataclass(frozen=True)
class Request:
    """A request as the server saw it.

    Attributes:
        path: without the query.
        query: parameters, each with its values.
        headers: by name in lower case.
        method: `GET`, `PATCH` or `POST`.
    """

    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    method: str = "GET"


@dataclass(frozen=True)
class Answer:
    """An answer of the server.

    Attributes:
        status: HTTP status.
        body: sent as it is.
    """

    status: int
    body: bytes


_NOT_THERE = Answer(404, b'{"kind":"Status","code":404}')


@dataclass
class ApiServer:
    """The server.

    Attributes:
        url: its address; empty where none runs.
        answers: by path; every other path is a 404.
        applies: answers to server-side applies, by path; every other one is taken.
        creates: answers to what is created, by path; every other object is taken as it is.
        asked: requests so far.
        events: what watches of a path are told, in JSON; None ends one.
    """

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    applies: dict[str, Answer] = field(default_factory=dict)
    creates: dict[str, Answer] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    events: dict[str, SimpleQueue[bytes | None]] = field(default_factory=lambda: defaultdict(SimpleQueue))

    def tell(self, path: str, change: str, name: str, **metadata: object) -> None:
        """Tell a watch of a path of a change (`ADDED`, `MODIFIED` or `DELETED`) of an object."""
        event = {"type": change, "object": {"metadata": {"name": name, "resourceVersion": "8", **metadata}}}
        self.events[path].put(json.dumps(event).encode() + b"\n")

    def serve(self, path: str, document: object) -> None:
        """Answer a path with a JSON document."""
        self.answers[path] = Answer(200, json.dumps(document).encode())

    def pages(self, path: str, by_token: Mapping[str, object]) -> None:
        """Answer a list page by page: the first under the empty token."""
        for token, document in by_token.items():
            self.serve(f"{path}?continue={token}" if token else path, document)

    def fail(self, path: str, status: int) -> None:
        """Answer a path with an error status."""
        self.answers[path] = Answer(status, json.dumps({"kind": "Status", "code": status}).encode())

    def answered(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a question as the running server does, for `connected`."""
        path, token = request.url.path, request.url.params.get("continue")
        answer = self.answers.get(f"{path}?continue={token}" if token else path, _NOT_THERE)
        return httpx2.Response(answer.status, content=answer.body)

    def object_to(self, path: str, status: int, message: str) -> None:
        """Refuse a server-side apply in the API server's words."""
        self.applies[path] = Answer(status, json.dumps({"kind": "Status", "code": status, "message": message}).encode())


def node(
    name: str,
    *,
    architecture: str = "arm64",
    memory: str = "128Gi",
    gpus: int = 1,
    labels: Mapping[str, str] | None = None,
    **more_labels: str,
) -> Any:  # noqa: ANN401 - JSON
    """A node as the API server shows it."""
    return {
        "metadata": {"name": name, "labels": dict(labels or {}) | more_labels, "annotations": {"a": "b"}},
        "status": {
            "nodeInfo": {"architecture": architecture, "kubeletVersion": "v1.36.2"},
            "capacity": {"memory": memory, "cpu": "8"},
            "allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {},
        },
    }


def deployment(  # noqa: PLR0913 - by name
    name: str,
    *,
    release: str = "",
    replicas: int = 1,
    available: int = 1,
    updated: int = 1,
    rolled_out: bool = True,
    generation: int = 1,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Deployment as the API server shows it, whose controller has seen its first generation."""
    reason = "NewReplicaSetAvailable" if rolled_out else "ReplicaSetUpdated"
    progressing = {"type": "Progressing", "status": "True", "reason": reason}
    shown = _of(release, name, generation)
    shown["metadata"]["labels"] = dict(labels or {})
    return shown | {
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": 1,
            "availableReplicas": available,
            "updatedReplicas": updated,
            "conditions": [progressing],
        },
    }


def daemon_set(name: str, *, release: str, desired: int, ready: int, generation: int = 1) -> dict[str, Any]:
    """A DaemonSet as the API server shows it, whose controller has seen its first generation."""
    status = {"observedGeneration": 1, "desiredNumberScheduled": desired, "numberReady": ready}
    return _of(release, name, generation) | {"status": status}


def _of(release: str, name: str, generation: int) -> dict[str, Any]:
    annotations = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": release} if release else {}
    return {"metadata": {"name": name, "namespace": release, "generation": generation, "annotations": annotations}}


def make_healthy(server: ApiServer) -> None:
    """Answer as a cluster on which the Jetson stack runs already, whoever installed it."""
    server.serve("/version", {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"})
    server.serve("/api/v1/namespaces/kube-system", {"metadata": {"name": "kube-system", "uid": UID}})
    server.serve("/api/v1/nodes", {"kind": "NodeList", "items": [node("jetson-1")]})
    server.serve(POLICIES, {"resources": [{"name": "mutatingadmissionpolicies"}, {"name": "other"}]})
    server.serve(RUNTIME_CLASS, {"metadata": {"name": "nvidia"}})
    server.serve(DEPLOYMENTS, {"items": []})
    for path in (QUEUE_CONTROLLER, *ADMISSION_SERVERS):
        server.serve(path, deployment(path.rpartition("/")[2]))
    for release, path in RELEASES.items():
        server.serve(f"{path}/deployments", {"items": [deployment(release, release=release)]})
        server.serve(f"{path}/daemonsets", {"items": []})
    for namespace, names in BACKENDS.items():
        backends = [deployment(name, labels={"gvirtus.io/backend": name}) for name in names]
        server.serve(f"/apis/apps/v1/namespaces/{namespace}/deployments", {"items": backends})


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    """A server on a free loopback port, without any answer yet."""

    class ApiHandler(Handler):
        def do_PATCH(self) -> None:
            self.body()
            self._answer(state.applies, Answer(200, b"{}"))

        def do_POST(self) -> None:
            self._answer(state.creates, Answer(201, self.body()))

        def do_GET(self) -> None:
            self._answer(state.answers, _NOT_THERE)

        def _tell(self, events: SimpleQueue[bytes | None]) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            while event := events.get():
                self.wfile.write(event)

        def _answer(self, answers: Mapping[str, Answer], otherwise: Answer) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.asked.append(Request(parts.path, parse_qs(parts.query), headers, self.command))
            token = state.asked[-1].query.get("continue")
            answer = answers.get(f"{parts.path}?continue={token[0]}" if token else parts.path, otherwise)
            if answer.status < 400 and "watch" in state.asked[-1].query:
                self._tell(state.events[parts.path])
                return
            self.answer(answer.status, answer.body, {"Content-Type": "application/json"})

    with serving(ApiHandler, tls) as port:
        state = ApiServer(f"{'http' if tls is None else 'https'}://127.0.0.1:{port}")
        yield state


def certificate() -> tuple[ssl.SSLContext, bytes]:
    """A server's TLS context with a certificate for 127.0.0.1, and the certificate of its authority."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, authority.cert_pem.bytes()


@cache
def _authority() -> str:
    """A certificate authority in base64: without one, the hundred of the machine are read for each connection."""
    return base64.b64encode(trustme.CA().cert_pem.bytes()).decode()


def kubeconfig(server: str) -> dict[str, Any]:
    """A kubeconfig's content: one cluster, one user with a token, the context `loopback`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "loopback",
        "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority-data": _authority()}}],
        "users": [{"name": "admin", "user": {"token": "let-me-in"}}],
        "contexts": [{"name": "loopback", "context": {"cluster": "local", "user": "admin"}}],
    }


def write_kubeconfig(path: Path, content: object) -> str:
    """Write a kubeconfig and return its path as a stack would say it."""
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def connected(answer: Callable[[httpx2.Request], httpx2.Response]) -> Cluster:
    """The program's client of a cluster that a function answers for: no socket is opened."""
    config = KubeConfig.from_dict(kubeconfig("https://board.example")).get()
    assert isinstance(config, SingleConfig)
    http = httpx2.Client(base_url="https://board.example", transport=httpx2.MockTransport(answer))
    return Cluster(ChosenContext("loopback", "kubeconfig", config, {}), http)
