"""Backends and frontends: what must be there, what must not, and probes that really run."""

import json
import os
import resource
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from config.gvirtus import GvirtusSettings
from config.stack import StackSettings
from manifests.gvirtus import backends as built
from manifests.gvirtus.frontends import device_plugin, placement_policy
from testbed.stacks import Json, changed, gvirtus, gvirtus_full, parse, without, x86


def _settings(stack: Json) -> tuple[StackSettings, GvirtusSettings]:
    settings = parse(stack)
    assert settings.gvirtus is not None
    return settings, settings.gvirtus


def _pod(stack: Json, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = built.deployment(*_settings(stack), name)["spec"]["template"]["spec"]
    return spec


def _runs(script: str) -> bool:
    return subprocess.run(["/bin/sh", "-c", script], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("name", ["gpu-a", "gpu-b"])
def test_a_backend_is_one_pod_with_one_gpu(name: str) -> None:
    deployment = built.deployment(*_settings(gvirtus()), name)
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}, "the GPU is not there twice"
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


@pytest.mark.parametrize("name", ["gpu-a", "gpu-b"])
def test_a_backend_has_no_privilege(name: str) -> None:
    pod = _pod(gvirtus(), name)
    text = json.dumps(pod)
    assert "hostPath" not in text
    assert "privileged" not in text
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_device_files_of_a_jetson_belong_to_a_group() -> None:
    assert _pod(gvirtus(), "gpu-a")["securityContext"]["supplementalGroups"] == [44]
    stack = changed(gvirtus(), "platform", x86()["platform"])
    assert "supplementalGroups" not in _pod(stack, "gpu-a")["securityContext"]


def test_a_backends_place() -> None:
    node = _pod(gvirtus(), "gpu-a")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert node == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x86-1"]}]}]
    }
    assert _pod(gvirtus(), "gpu-b")["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    detected = _pod(without(gvirtus(), "gvirtus.backends.gpu-a.node"), "gpu-a")
    assert detected["nodeSelector"] == {"gvirtus.io/backend.allowed": "true"}


def test_a_backend_with_labels_of_its_own_does_not_run_on_a_frontend() -> None:
    """A frontend advertises the very resource that a backend asks for."""
    stack = changed(gvirtus(), "gvirtus.backends.gpu-b.node_selector", {"kubernetes.io/arch": "amd64"})
    required = _pod(stack, "gpu-b")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    frontends = {"key": "gvirtus.io/frontend.allowed", "operator": "NotIn", "values": ["true"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [frontends]}]}
    assert "affinity" not in _pod(without(stack, "gvirtus.backends.gpu-b.node_selector"), "gpu-b")


def test_no_backend_restarts_where_frontends_come_or_go() -> None:
    without_frontends = without(gvirtus(), "gvirtus.frontends")
    for name in ("gpu-a", "gpu-b"):
        assert _pod(without_frontends, name) == _pod(gvirtus(), name)


def test_the_backends_own_file_is_complete() -> None:
    template = built.deployment(*_settings(gvirtus()), "gpu-a")["spec"]["template"]
    properties = json.loads(template["metadata"]["annotations"]["gvirtus.io/properties"])
    assert properties["secure_application"] is False, "both are mandatory in a backend's file"
    [communicator] = properties["communicator"]
    assert communicator["endpoint"]["port"] == "9999", "text: a number ends the backend"
    assert {"cuda", "cudart", "cublas"} <= set(communicator["plugins"])


def test_no_probe_connects() -> None:
    for name in ("gpu-a", "gpu-b"):
        [container] = _pod(gvirtus(), name)["containers"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe].keys() & {"tcpSocket", "httpGet", "grpc"} == set()
            assert container[probe]["exec"]["command"][:2] == ["/bin/sh", "-c"]
    alive = _pod(gvirtus(), "gpu-a")["containers"][0]["livenessProbe"]["exec"]["command"][2]
    assert ":270F " in alive
    assert str(built.OPEN_FILES_AT_RESTART) in alive
    assert built.OPEN_FILES_AT_RESTART < built.OPEN_FILES


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_probe_sees_a_listening_port_and_its_end(family: socket.AddressFamily) -> None:
    try:
        server = socket.create_server(("::1" if family is socket.AF_INET6 else "127.0.0.1", 0), family=family)
    except OSError:
        pytest.skip("this machine has no such address family on loopback")
    with server:
        port = server.getsockname()[1]
        assert _runs(built.listening_script(port))
    assert not _runs(built.listening_script(port))


def test_the_probe_does_not_take_a_client_for_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert not _runs(built.listening_script(client.getsockname()[1]))


def test_the_bound_of_descriptors_counts_them() -> None:
    """Of all processes that the user may look at, this one with its own among them."""
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(200)]
    try:
        assert not _runs(built.descriptors_script(200))
        assert _runs(built.descriptors_script(10_000_000))
    finally:
        for file in files:
            os.close(file)


def test_the_start_sets_the_bound_and_hands_over() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < built.OPEN_FILES:
        pytest.skip(f"this machine allows a process {hard} open files, fewer than a backend takes")
    [container] = _pod(gvirtus(), "gpu-a")["containers"]
    *shell, script = container["command"]
    assert shell == ["/bin/bash", "-c"]
    echo = script.replace('"${GVIRTUS_HOME}/bin/gvirtus-backend"', "/bin/sh -c 'ulimit -n; echo \"$0\"'")
    done = subprocess.run([*shell, echo], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(built.OPEN_FILES), "/etc/gvirtus/properties.json"]


def test_a_service_is_ipv4_and_has_one_backend() -> None:
    _, remote = _settings(gvirtus())
    spec = built.service(remote, "gpu-a")["spec"]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert spec["selector"] == {"gvirtus.io/backend": "gpu-a"}
    assert spec["ports"][0]["port"] == spec["ports"][0]["targetPort"] == 9999


def test_the_services_port_can_be_another_one_than_the_programs() -> None:
    _, remote = _settings(gvirtus_full())
    [port] = built.service(remote, "only")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (34567, 9999)
    assert built.endpoints(remote, {"only": "10.0.0.1"})["only"] == "10.0.0.1:34567"


def test_pods_are_told_no_name_that_a_namespace_of_somebody_else_could_answer() -> None:
    """`gpu-b.gvirtus-system.svc` is first looked for as a pod of a namespace `svc`, by the search list of every pod."""
    _, remote = _settings(gvirtus())
    addresses = {"gpu-a": "10.96.7.7", "gpu-b": "10.96.7.8"}
    assert built.endpoints(remote, addresses) == {"gpu-a": "10.96.7.7:9999", "gpu-b": "10.96.7.8:14833"}


def test_only_pods_that_ask_reach_a_backend_and_it_reaches_nobody() -> None:
    _, remote = _settings(gvirtus())
    spec = built.network_policy(remote)["spec"]
    assert spec["podSelector"] == {}, "every pod of the namespace"
    assert spec["egress"] == []
    [rule] = spec["ingress"]
    assert rule["from"] == [
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"gvirtus.io/enabled": "true"}}}
    ], "one entry: two would be an or"
    assert [port["port"] for port in rule["ports"]] == [9999, 14833]
    _, narrow = _settings(gvirtus_full())
    [clients] = built.network_policy(narrow)["spec"]["ingress"][0]["from"]
    assert clients["namespaceSelector"] == {"matchLabels": {"example.com/team": "robots"}}


@pytest.mark.parametrize(
    ("make", "folder"),
    [
        (gvirtus, "/var/lib/kubelet/device-plugins"),
        (gvirtus_full, "/var/snap/microk8s/common/var/lib/kubelet/device-plugins"),
    ],
)
def test_the_device_plugin_has_the_kubelets_folder_and_no_privilege(make: Callable[[], Json], folder: str) -> None:
    settings, remote = _settings(make())
    assert remote.frontends is not None
    manifest = device_plugin(settings, remote.frontends)
    spec = manifest["spec"]["template"]["spec"]
    [volume] = spec["volumes"]
    assert volume["hostPath"] == {"path": folder, "type": "Directory"}
    [container] = spec["containers"]
    assert "@sha256:" in container["image"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    [term] = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    never = {e["key"] for e in term["matchExpressions"] if e["operator"] == "NotIn"}
    assert never == {
        "nvidia.com/gpu.present",
        "feature.node.kubernetes.io/pci-10de.present",
        "kai-anywhere.io/platform",
    }


def test_what_nv_fractions_reads_counts_only_where_the_stack_has_it() -> None:
    stack = changed(x86(), "gvirtus", gvirtus()["gvirtus"])
    for mode, counts in (("non_memory_enforced", False), ("nv_fractions", True)):
        policy = placement_policy(parse(changed(stack, "kai.gpu_sharing_mode", mode)))
        assert ("gpu-memory.request" in json.dumps(policy)) is counts
