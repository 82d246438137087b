"""Backends of remote GPUs: one Deployment and one Service each, and who may reach them."""

import json
from collections.abc import Mapping
from typing import Any

from config.gvirtus import FRONTEND_ALLOWED, BackendKind, GvirtusBackend, GvirtusSettings
from config.platform import TegraPlatform, X86Platform
from config.stack import StackSettings
from manifests.gvirtus.injection import (
    ENABLED_LABEL,
    FILE,
    PROPERTIES_ANNOTATION,
    frontend_properties,
    properties_volume,
)
from manifests.objects import Manifest, as_user, namespace, unprivileged
from manifests.reservation import RUNTIME_CLASS
from manifests.tolerations import pod_tolerations

BACKEND_ALLOWED = "gvirtus.io/backend.allowed"
"""On nodes where a GPU was detected."""
BACKEND_LABEL = "gvirtus.io/backend"
NETWORK_POLICY = "gvirtus-clients"
PORTS = {BackendKind.GVIRTUS: 9999, BackendKind.LUPINE: 14833}
"""What each program listens on inside its pod."""
PLUGINS = ("cuda", "cudart", "cublas", "curand", "cudnn", "cufft", "cusolver", "cusparse", "nvrtc", "nvml")
"""The CUDA libraries that GVirtuS serves, each by a plugin in its image."""
OPEN_FILES = 16384
"""Open descriptors of a GVirtuS backend. Each connection costs one for the backend's life, since it is never closed
(src/communicators/tcp/TcpCommunicator.cpp); every container runtime's hard limit is above this."""
OPEN_FILES_AT_RESTART = 14000
"""Where the liveness probe gives up, while clients are still accepted."""
_VIDEO_GROUP = 44
"""Owns /dev/nvmap and its like on JetPack, mode 0660."""
_CONFIG_FOLDER = "/etc/gvirtus"
_GRACE_SECONDS = {
    # As process 1 it ignores SIGTERM: all of a longer wait would be waste.
    BackendKind.GVIRTUS: 5,
    # Finishes the calls in flight, then ends.
    BackendKind.LUPINE: 60,
}


def backends_namespace(gvirtus: GvirtusSettings) -> Manifest:
    """The backends' namespace. `restricted`: a server of GPUs needs no privilege, the runtime class brings devices."""
    return namespace(gvirtus.namespace, pod_security="restricted")


def endpoints(gvirtus: GvirtusSettings, addresses: Mapping[str, str]) -> dict[str, str]:
    """Where the backends answer, by name: the admission server reads it from a ConfigMap.

    Args:
        gvirtus: the settings.
        addresses: the ClusterIP of each backend's Service. No names: GVirtuS' clients resolve none, and no client knows
            whom it reached. A pod's resolver tries `NAME.NAMESPACE.svc` within `svc.cluster.local` first, where it is a
            pod NAME of a Service NAMESPACE in a namespace `svc`, which is whoever's that may create namespaces.
    """
    return {name: f"{addresses[name]}:{service_port(backend)}" for name, backend in sorted(gvirtus.backends.items())}


def service_port(backend: GvirtusBackend) -> int:
    """The port of a backend's Service."""
    return backend.port or PORTS[backend.kind]


def service(gvirtus: GvirtusSettings, name: str) -> Manifest:
    """A backend's own Service. One backend each: a process connects once per thread, and would be split over several.

    IPv4, which is all that both programs listen on, and that GVirtuS' clients read. Its address is needed before a
    backend is ready, so `up` does not wait for endpoints here; it waits for the Deployment.
    """
    backend = gvirtus.backends[name]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(gvirtus, name) | {"annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "type": "ClusterIP",
            "ipFamilyPolicy": "SingleStack",
            "ipFamilies": ["IPv4"],
            "selector": {BACKEND_LABEL: name},
            "ports": [
                {"name": "gpu", "protocol": "TCP", "port": service_port(backend), "targetPort": PORTS[backend.kind]}
            ],
        },
    }


def deployment(settings: StackSettings, gvirtus: GvirtusSettings, name: str) -> Manifest:
    """A backend: one pod with one GPU; never two at once, since the GPU is not there twice."""
    backend = gvirtus.backends[name]
    metadata = _metadata(gvirtus, name)
    annotations: dict[str, str] = {}
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    container: dict[str, Any] = {
        "name": "backend",
        "image": backend.image,
        "ports": [{"name": "gpu", "containerPort": PORTS[backend.kind], "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": backend.cpu, "memory": backend.memory},
            "limits": {"memory": backend.memory, backend.gpu_resource: "1"},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - the container's own
        "securityContext": unprivileged(),
        **_probes(backend.kind),
    }
    match backend.kind:
        case BackendKind.GVIRTUS:
            annotations[PROPERTIES_ANNOTATION] = _backend_properties()
            volumes.append(properties_volume())
            # Its logger never flushes. Of a pipe, as a container has it, nothing is seen for hours, and the last
            # lines are lost where it ends (log4cplus on stdout, commit 6d511da). stdbuf is in coreutils.
            line_by_line = "$(type -P stdbuf && echo -oL)"
            program = f'"${{GVIRTUS_HOME}}/bin/gvirtus-backend" {_CONFIG_FOLDER}/{FILE}'
            container["command"] = ["/bin/bash", "-c", f"ulimit -n {OPEN_FILES} && exec {line_by_line} {program}"]
            container["volumeMounts"].append(
                {"name": properties_volume()["name"], "mountPath": _CONFIG_FOLDER, "readOnly": True}
            )
        case BackendKind.LUPINE:
            pass
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        # The program waits for it itself (cluster/waiting.backend_ready).
        "metadata": metadata | {"annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": {BACKEND_LABEL: name}},
            "template": {
                "metadata": {"labels": metadata["labels"]} | ({"annotations": annotations} if annotations else {}),
                "spec": {
                    "runtimeClassName": RUNTIME_CLASS,
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": _GRACE_SECONDS[backend.kind],
                    **_place(backend),
                    **pod_tolerations(settings.cluster),
                    **(
                        {"imagePullSecrets": [{"name": s} for s in gvirtus.pull_secrets]}
                        if gvirtus.pull_secrets
                        else {}
                    ),
                    "securityContext": _pod_security(settings, backend),
                    "volumes": volumes,
                    "containers": [container],
                },
            },
        },
    }


def network_policy(gvirtus: GvirtusSettings) -> Manifest:
    """Only pods that ask for a remote GPU reach a backend, and a backend reaches nobody.

    GVirtuS has neither authentication nor encryption, and one malformed request ends it.
    """
    labels = dict(sorted(gvirtus.client_namespace_labels.items()))
    clients = {
        "namespaceSelector": {"matchLabels": labels} if labels else {},
        "podSelector": {"matchLabels": {ENABLED_LABEL: "true"}},
    }
    ports = sorted({PORTS[backend.kind] for backend in gvirtus.backends.values()})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NETWORK_POLICY, "namespace": gvirtus.namespace},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [clients], "ports": [{"protocol": "TCP", "port": port} for port in ports]}],
            "egress": [],
        },
    }


def listening_script(port: int) -> str:
    """A shell line that succeeds while something listens on a port, over IPv4 or IPv6 (0A is LISTEN)."""
    return f"grep -qsE ':{port:04X} 0+:0000 0A' /proc/net/tcp /proc/net/tcp6"


def descriptors_script(bound: int) -> str:
    """A shell line that succeeds while the container's processes have fewer open descriptors than that."""
    return f"set -- /proc/[0-9]*/fd/* && [ $# -lt {bound} ]"


def _metadata(gvirtus: GvirtusSettings, name: str) -> Manifest:
    labels = {BACKEND_LABEL: name, "app.kubernetes.io/part-of": "kai-anywhere"}
    return {"name": name, "namespace": gvirtus.namespace, "labels": labels}


def _backend_properties() -> str:
    """GVirtuS' file for a backend. It binds every address whatever stands there, but wants one of this form."""
    endpoint = json.loads(frontend_properties("127.0.0.1", str(PORTS[BackendKind.GVIRTUS])))["communicator"][0]
    properties = {"communicator": [endpoint | {"plugins": list(PLUGINS)}], "secure_application": False}
    return json.dumps(properties, separators=(",", ":"))


def _probes(kind: BackendKind) -> dict[str, Any]:
    """Probes that ask the kernel, not the server: each connection would cost a GVirtuS backend a descriptor for ever.

    A server whose serving process died keeps running with its port closed, so the process alone says nothing. After a
    crash with open clients, the port stays taken for up to 60 s: the start may take longer than that.
    """
    listens = listening_script(PORTS[kind])
    alive = listens
    if kind is BackendKind.GVIRTUS:
        alive = f"{listens} && {descriptors_script(OPEN_FILES_AT_RESTART)}"

    def probe(script: str, *, period: int, failures: int) -> dict[str, Any]:
        return {
            "exec": {"command": ["/bin/sh", "-c", script]},
            "periodSeconds": period,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        }

    return {
        "startupProbe": probe(listens, period=2, failures=60),
        "readinessProbe": probe(listens, period=5, failures=1),
        "livenessProbe": probe(alive, period=10, failures=3),
    }


def _place(backend: GvirtusBackend) -> dict[str, Any]:
    if backend.node is not None:
        return _affinity(matchFields={"key": "metadata.name", "operator": "In", "values": [backend.node]})
    place = {"nodeSelector": dict(sorted((backend.node_selector or {BACKEND_ALLOWED: "true"}).items()))}
    if backend.node_selector is not None:
        # A frontend may have these labels too, and its devices stand for the backends. Said without frontends as well:
        # a backend restarts where its pod changes, and must not for the first one.
        place |= _affinity(matchExpressions={"key": FRONTEND_ALLOWED, "operator": "NotIn", "values": ["true"]})
    return place


def _affinity(**requirements: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{kind: [requirement] for kind, requirement in requirements.items()}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _pod_security(settings: StackSettings, backend: GvirtusBackend) -> dict[str, Any]:
    match settings.platform:
        case TegraPlatform():
            return as_user(backend.run_as_user) | {"supplementalGroups": [_VIDEO_GROUP]}
        case X86Platform():
            return as_user(backend.run_as_user)
