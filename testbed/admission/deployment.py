"""The admission server as a real process beside a real API server, with the rights that the stack gives it."""

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import yaml

import simulator
from config.stack import StackSettings
from manifests import admission, reservation
from manifests.objects import Manifest, manifests
from testbed.kubelet import mount
from testbed.loopback_service import LoopbackService, loopback_service
from testbed.stacks import ROOT, Json
from testbed.waiting import eventually

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "MutatingWebhookConfiguration": CONFIGURATIONS,
    "MutatingAdmissionPolicy": "/apis/{version}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "/apis/{version}/mutatingadmissionpolicybindings",
    "Certificate": "/apis/cert-manager.io/v1/namespaces/{}/certificates",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
}


def make(api: httpx2.Client, manifest: Manifest) -> None:
    """Create an object."""
    path = _path(manifest)
    response = api.post(path, json=manifest)
    assert response.status_code == httpx2.codes.CREATED, response.text


def remove(api: httpx2.Client, manifest: Manifest) -> None:
    """Delete an object."""
    path = _path(manifest)
    response = api.delete(f"{path}/{manifest['metadata']['name']}")
    assert response.status_code == httpx2.codes.OK, response.text


def _path(manifest: Manifest) -> str:
    return _PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace"), version=manifest["apiVersion"])


def prepare(api: httpx2.Client, settings: StackSettings, node: str) -> None:
    """What the stack and KAI make before any reservation pod: namespace, account, RuntimeClass, the node's label."""
    make(api, reservation.reservation_namespace(settings))
    account = {"name": reservation.SERVICE_ACCOUNT, "namespace": reservation.NAMESPACE}
    make(api, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": reservation.RUNTIME_CLASS}}
    make(api, runtime | {"handler": "nvidia"})
    label = {"metadata": {"labels": {"kai-anywhere.io/platform": "tegra"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert api.patch(f"/api/v1/nodes/{node}", json=label, headers=headers).status_code == httpx2.codes.OK


@dataclass
class Replica:
    """One server process.

    Attributes:
        process: its process.
        port: of its webhooks.
        health_port: of its health.
    """

    process: subprocess.Popen[str]
    port: int
    health_port: int

    def ask(self, path: str) -> tuple[int, str]:
        """GET on the health port: status and text, status 0 if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def metric(self, name: str) -> float:
        """One sample of /metrics, 0 if it is not there yet."""
        for line in self.ask("/metrics")[1].splitlines():
            if line.startswith(name):
                return float(line.rpartition(" ")[2])
        return 0.0


class Deployment:
    """The server's replicas behind a Service, as processes.

    Attributes:
        service: the address that the API server calls.
        replicas: running or killed.
        settings: of the stack.
    """

    def __init__(
        self, folder: Path, control_plane: simulator.ControlPlane, api: httpx2.Client, settings: StackSettings
    ) -> None:
        self.api = api
        self.settings = settings
        self.replicas: list[Replica] = []
        self.service = LoopbackService()
        self._folder = folder
        self._volume = folder / "volume"
        self._files: dict[str, bytes] = {}
        self._cluster = control_plane
        self._logs = 0

    def install(self, certificate: Json | None = None) -> None:
        """Make what the stack makes, except the Deployment.

        Args:
            certificate: changes to the server's settings of its certificate.
        """
        objects = manifests(admission.objects(self.settings))
        self.configurations = admission.webhooks(self.settings)
        for key in ("namespace", "service-account", "secret", "role", "role-binding", "certificate"):
            if key in objects:
                make(self.api, objects[key])
        names = [manifest["metadata"]["name"] for manifest in self.configurations.values()]
        role = json.loads(json.dumps(objects["cluster-role"]))
        for rule in role["rules"]:
            if "resourceNames" in rule:
                rule["resourceNames"] = names
        make(self.api, role)
        make(self.api, objects["cluster-role-binding"])
        # An ExternalName is the only Service that leads an API server to a process on its own machine; the
        # certificate is checked against the Service's DNS name all the same.
        service = objects["service"] | {"spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}
        make(self.api, service)
        for manifest in self.configurations.values():
            make(self.api, self.reachable(manifest))
        self._write_settings(names, certificate or {})

    def reachable(self, manifest: Manifest) -> Manifest:
        """A webhook configuration with the port of our loopback Service."""
        changed: Manifest = json.loads(json.dumps(manifest))
        for webhook in changed["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = self.service.port
        return changed

    def start(self) -> Replica:
        """Start one more replica, and wait until it is ready."""
        self._logs += 1
        log = self._folder / f"server-{self._logs}.log"
        with log.open("w", encoding="utf-8") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "agents.admission", str(self._volume)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                text=True,
                env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            )
        replica = Replica(process, 0, 0)
        self.replicas.append(replica)
        eventually(lambda: "listening" in log.read_text(encoding="utf-8") or process.poll() is not None)
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
        [ports] = [line for line in lines if line["event"] == "listening"]
        replica.port, replica.health_port = ports["port"], ports["health_port"]
        eventually(lambda: replica.ask("/readyz")[0] == httpx2.codes.OK)
        self.service.backends = [running.port for running in self.replicas if running.process.poll() is None]
        return replica

    def logs(self) -> list[Json]:
        """Every line that any replica wrote."""
        texts = [path.read_text(encoding="utf-8") for path in sorted(self._folder.glob("server-*.log"))]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    @property
    def dns_name(self) -> str:
        """The name under which API servers call the server."""
        return f"{admission.NAME}.{self.settings.admission.namespace}.svc"

    def kill(self) -> None:
        """End every replica."""
        for replica in self.replicas:
            replica.kill()
        self.replicas = []

    def bundle(self, configuration: str = admission.RESERVATION_WEBHOOK) -> bytes:
        """The authorities that API servers trust now."""
        [webhook] = self.api.get(f"{CONFIGURATIONS}/{configuration}").json()["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))

    def token(self) -> str:
        """A token of the server's account."""
        namespace = self.settings.admission.namespace
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{admission.NAME}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        response = self.api.post(path, json=body)
        assert response.status_code == httpx2.codes.CREATED, response.text
        token: str = response.json()["status"]["token"]
        return token

    def _write_settings(self, names: list[str], certificate: Json) -> None:
        kubeconfig: Any = yaml.safe_load(self._cluster.kubeconfig.read_text(encoding="utf-8"))
        [cluster] = [entry["cluster"] for entry in kubeconfig["clusters"]]
        authority = self._folder / "api-ca.crt"
        if "certificate-authority-data" in cluster:
            authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        else:
            authority.write_bytes((self._cluster.kubeconfig.parent / cluster["certificate-authority"]).read_bytes())
        token = self._folder / "token"
        token.write_text(self.token(), encoding="ascii")
        assert urlsplit(cluster["server"]).scheme == "https"
        settings = admission.server_settings(self.settings) | {
            "webhook_configurations": names,
            "check_seconds": 0.5,
            "drain_seconds": 1,
            "host": "127.0.0.1",
            "port": 0,
            "health_port": 0,
            "api": {"server": cluster["server"], "ca_file": str(authority), "token_file": str(token)},
        }
        settings["certificate"] |= certificate
        self._files["settings.json"] = json.dumps(settings).encode()
        mount(self._volume, self._files)

    def write_backends(self, endpoints: Json) -> None:
        """Mount where backends answer, for replicas that run and for those to come."""
        self._files |= {name: text.encode() for name, text in admission.gvirtus_backends_data(endpoints).items()}
        mount(self._volume, self._files)


@contextmanager
def deployment(
    folder: Path, control_plane: simulator.ControlPlane, api: httpx2.Client, settings: StackSettings
) -> Iterator[Deployment]:
    """A Deployment without replicas yet."""
    folder.mkdir(parents=True)
    server = Deployment(folder, control_plane, api, settings)
    with loopback_service() as service:
        server.service = service
        try:
            yield server
        finally:
            server.kill()
