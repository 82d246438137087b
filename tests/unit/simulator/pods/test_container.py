"""What a container becomes as a process."""

import base64
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.pods import container, probes
from simulator.pods.images import ProgramError, programs_of
from toolchain import ImageProgram

PROGRAM = ImageProgram(
    Path("/programs/scheduler"), (), (), {"FROM": "the image", "SAID": "by the image"}, None, "a test"
)
MAIN: dict[str, Any] = {
    "name": "main",
    "image": "ghcr.io/kai/scheduler:v1",
    "args": ["--scheduler-conf=/etc/config/config.yaml", "--v", "3"],
    "env": [
        {"name": "SAID", "value": "by the container"},
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ],
    "volumeMounts": [
        {"name": "config", "mountPath": "/etc/config/config.yaml", "subPath": "config.yaml"},
        {"name": "certificate", "mountPath": "/tmp/certs"},  # noqa: S108 (the container's)
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
    ],
    "ports": [{"name": "metrics", "containerPort": 8080}],
}
POD: dict[str, Any] = {
    "metadata": {"name": "scheduler-1", "namespace": "kai"},
    "spec": {
        "containers": [MAIN],
        "volumes": [
            {"name": "config", "configMap": {"name": "settings"}},
            {"name": "certificate", "secret": {"secretName": "tls"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}, {"configMap": {"name": "ca"}}]}},
        ],
    },
}
SERVER = "https://127.0.0.1:6443"
DATA = {
    ("ConfigMap", "settings"): {"config.yaml": b"actions: allocate", "other": b"x"},
    ("Secret", "tls"): {"tls.crt": b"certificate"},
}


def test_a_program_that_can_not_be_had_is_told_of_its_pod(tmp_path: Path) -> None:
    shutil.copy("/bin/true", tmp_path / "binder")
    program_of = programs_of(str(tmp_path))
    assert program_of("ghcr.io/kai/binder:v1").path == tmp_path / "binder"
    with pytest.raises(ProgramError, match=r"has no program operator, for ghcr\.io/kai/operator:v1"):
        program_of("ghcr.io/kai/operator:v1")


def test_our_own_admission_server_runs_from_this_checkout(tmp_path: Path) -> None:
    program = programs_of(str(tmp_path))("registry.example.com/kai-anywhere/agents:0.1.0")
    assert program.path == Path(sys.executable)
    assert (program.arguments, program.default_arguments) == (("-m",), ("agents.admission",))
    assert (Path(program.environment["PYTHONPATH"]) / "agents" / "admission" / "__main__.py").is_file()


def test_our_own_exporter_runs_from_this_checkout(tmp_path: Path) -> None:
    program = programs_of(str(tmp_path))("registry.example.com/kai-anywhere/metrics:0.1.0")
    assert (program.path, program.default_arguments) == (Path(sys.executable), ("agents.metrics",))


def test_arguments_name_the_files_where_they_are(tmp_path: Path) -> None:
    assert container.arguments(PROGRAM, MAIN, tmp_path) == [
        "/programs/scheduler",
        f"--scheduler-conf={tmp_path}/etc/config/config.yaml",
        "--v",
        "3",
    ]
    image_has_some = replace(PROGRAM, arguments=("--always",), default_arguments=("--default",))
    assert container.arguments(image_has_some, {"name": "main"}, tmp_path)[1:] == ["--always", "--default"]
    assert container.arguments(image_has_some, {"name": "main", "args": ["-v"]}, tmp_path)[1:] == ["--always", "-v"]


def test_variables_are_the_containers_then_the_images(tmp_path: Path) -> None:
    assert container.environment(PROGRAM, POD, MAIN, tmp_path, SERVER) == {
        "FROM": "the image",
        "SAID": "by the container",
        "NAMESPACE": "kai",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "6443",
    }


@pytest.mark.parametrize(
    "source", [{"secretKeyRef": {"name": "s", "key": "k"}}, {"fieldRef": {"fieldPath": "status.hostIP"}}]
)
def test_a_variable_that_is_not_the_pods_is_refused(source: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="variable ODD"):
        container.environment(PROGRAM, POD, {**MAIN, "env": [{"name": "ODD", "valueFrom": source}]}, tmp_path, SERVER)


def test_files_of_volumes_are_written_for_their_owner_alone(tmp_path: Path) -> None:
    assert list(container.sources(POD)) == list(DATA)
    container.write_files(POD, MAIN, tmp_path, DATA)
    files = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in files.items()} == {
        "etc/config/config.yaml": b"actions: allocate",
        "tmp/certs/tls.crt": b"certificate",
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in files.values())


def test_the_accounts_files_are_where_a_container_has_them(tmp_path: Path) -> None:
    token = container.write_account(tmp_path, "secret", b"certificate", "kai")
    folder = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    assert token == folder / "token"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "token": b"secret",
        "ca.crt": b"certificate",
        "namespace": b"kai",
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_a_projected_volume_has_the_files_of_all_its_sources(tmp_path: Path) -> None:
    sources = [
        {"configMap": {"name": "settings"}},
        {"secret": {"name": "tls"}},
        {"configMap": {"name": "later", "optional": True}},
    ]
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "all", "projected": {"sources": sources}}]}}
    main = {"volumeMounts": [{"name": "all", "mountPath": "/etc/all"}]}
    assert list(container.sources(pod)) == [("ConfigMap", "settings"), ("Secret", "tls"), ("ConfigMap", "later")]
    container.write_files(pod, main, tmp_path, DATA)
    assert sorted(path.name for path in (tmp_path / "etc/all").iterdir()) == ["config.yaml", "other", "tls.crt"]
    with pytest.raises(ProgramError, match="volume all: Secret tls does not exist"):
        container.write_files(pod, main, tmp_path, {key: DATA[key] for key in DATA if key[0] == "ConfigMap"})


def test_a_missing_secret_and_a_volume_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="volume certificate: Secret tls does not exist"):
        container.write_files(POD, MAIN, tmp_path, {key: DATA[key] for key in DATA if key[0] == "ConfigMap"})
    host = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "config", "hostPath": {"path": "/etc"}}]}}
    with pytest.raises(ProgramError, match="volume config is neither of a Secret nor of a ConfigMap"):
        container.write_files(host, MAIN, tmp_path, DATA)


def test_secrets_are_decoded_and_config_maps_are_not() -> None:
    encoded = base64.b64encode(b"key").decode()
    assert container.decoded("Secret", {"data": {"tls.key": encoded}}) == {"tls.key": b"key"}
    assert container.decoded("ConfigMap", {"data": {"a": encoded}}) == {"a": encoded.encode()}
    assert container.decoded("ConfigMap", {}) == {}


@pytest.mark.parametrize("containers", [[MAIN, MAIN], [{**MAIN, "command": ["/bin/sh"]}]])
def test_only_one_container_that_runs_its_images_program_is_a_process(containers: list[Any]) -> None:
    assert container.only_container(POD) == MAIN
    with pytest.raises(ProgramError):
        container.only_container({**POD, "spec": {"containers": containers}})


def test_probes_that_are_not_understood_are_refused() -> None:
    probes.check(MAIN)
    probes.check(
        {**MAIN, "readinessProbe": {"httpGet": {"port": "metrics"}}, "livenessProbe": {"tcpSocket": {"port": 1}}}
    )
    assert probes.port_of(MAIN, "metrics") == 8080
    for odd in (
        {"readinessProbe": {"exec": {"command": ["true"]}}},
        {"startupProbe": {"httpGet": {"port": 8080}}},
        {"livenessProbe": {"httpGet": {"port": "none"}}},
    ):
        with pytest.raises(ProgramError):
            probes.check({**MAIN, **odd})
