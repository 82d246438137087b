"""What a bundle holds, and what it never holds."""

import json
import shutil
import stat
import tarfile
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from operations.__main__ import app
from operations.bundle import collect as collecting
from operations.bundle.clean import Cleaner
from operations.bundle.collect import Collected, collect
from operations.doctor.hosts.answer import HostLookError, HostReport
from operations.exit_status import ExitStatus
from operations.redaction import HIDDEN
from testbed.stacks import STACK_FILES, changed, jetson, of_hosts_alone
from tests.support.api_server import Answer, ApiServer, connected, kubeconfig, node, write_kubeconfig
from tests.support.hosts.examinations import jetson_examination
from tests.support.hosts.examinations import reports as hosts_reports

KAI = "/api/v1/namespaces/kai-scheduler"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJiaW5kZXIifQ.c2lnbmF0dXJl"
PLANTED = (
    "hunter2-of-the-registry",
    "s3cr3t-in-an-argument",
    "tenant-key-0815",
    "AKIAIOSFODNN7EXAMPLE",
    JWT,
    "let-me-in",
    "MIIEpAIBAAKCAQEA",
    "annotated-pa55",
    "event-token-4711",
    "CABUNDLE",
    "10.42.7.9",
    "fd00:42::7",
    "tenant-image",
    "end-of-a-tenants-log",
    "node-token-99",
    "previous-apply-secret",
)


def _pod(namespace: str, name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    container = {
        "name": "main",
        "image": "registry.example/tenant-image:1",
        "args": ["--registry-password=s3cr3t-in-an-argument", "--v=4"],
        "env": [
            {"name": "DB", "value": "tenant-key-0815"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"},
            {"name": "API_TOKEN", "value": "hunter2-of-the-registry"},
        ],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {
                "gpu-memory": "30720",
                "kubectl.kubernetes.io/last-applied-configuration": "previous-apply-secret",
                "example.com/login": "annotated-pa55" if namespace == "robots" else "fine",
            },
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "jetson-1", "containers": [container]} | more,
        "status": {
            "phase": "Running",
            "podIP": "10.42.7.9",
            "containerStatuses": [{"name": "main", "restartCount": 1, "state": {"running": {}}}],
        },
    }


LOG = f"""I1101 listening on 10.42.7.9:443 and [fd00:42::7]:443, on 127.0.0.1:80 too
authorization: Bearer {JWT}
password="hunter2-of-the-registry" user=me
key AKIAIOSFODNN7EXAMPLE
client token let-me-in
-----BEGIN RSA PRIVATE KEY-----
MIIEpAIBAAKCAQEA
-----END RSA PRIVATE KEY-----
ERROR_LIBRARY_NOT_FOUND at 10:42:07
"""


def test_pods_that_share_no_gpu_are_not_in_memory_all_at_once() -> None:
    """A cluster may have tens of thousands of them."""
    shop = _pod("shop", "web", schedulerName="default", volumes=[{"name": f"v{number}"} for number in range(20)])
    del shop["metadata"]["annotations"]["gpu-memory"]
    pages, page = 20, [shop] * 500

    def answer(request: httpx2.Request) -> httpx2.Response:
        number = int(request.url.params.get("continue") or 1)
        after = {"continue": str(number + 1)} if number < pages else {}
        return httpx2.Response(
            200, json={"items": page if request.url.path == "/api/v1/pods" else [], "metadata": after}
        )

    size = len(json.dumps(page)) * pages
    tracemalloc.start()
    try:
        collected = collect(connected(answer), ["kai-scheduler"], Cleaner(), lambda _: None)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (collected.files, collected.left_out) == ({}, [])
    assert most < size


@pytest.fixture
def secretive(api: ApiServer) -> ApiServer:
    """A cluster with a secret in every place that a bundle reads."""
    # A component's own image and annotations are not secret; a tenant's may be.
    binder = _pod("kai-scheduler", "binder")
    binder["spec"]["containers"][0]["image"] = "ghcr.io/kai-scheduler/binder:v0.18.6"
    api.serve(f"{KAI}/pods", {"items": [binder]})
    shop = _pod("shop", "web", schedulerName="default")
    del shop["metadata"]["annotations"]["gpu-memory"]
    arm = _pod("robots", "arm")
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "end-of-a-tenants-log"}}
    arm["status"]["containerStatuses"][0]["lastState"] = ended
    api.serve("/api/v1/pods", {"items": [binder, arm, shop]})
    # KAI's pod grouper copies all labels and annotations of what made the pod.
    group = {"name": "pg-arm", "namespace": "robots", "annotations": dict(arm["metadata"]["annotations"])}
    api.serve("/apis/scheduling.run.ai/v2alpha2/podgroups", {"items": [{"metadata": group, "spec": {"queue": "q"}}]})
    api.answers[f"{KAI}/pods/binder/log"] = Answer(200, LOG.encode())
    event = {"metadata": {"name": "e"}, "message": "failed with token=event-token-4711 at 10.42.7.9"}
    api.serve(f"{KAI}/events", {"items": [event]})
    webhook = {"metadata": {"name": "kai"}, "webhooks": [{"clientConfig": {"caBundle": "CABUNDLE"}}]}
    api.serve("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {"items": [webhook]})
    jetson = node("jetson-1")
    jetson["metadata"]["labels"] = {"nvidia.com/gpu.memory": "122880"}
    jetson["metadata"]["annotations"] = {"k3s.io/node-args": "--token node-token-99", "nvidia.com/gpu": "yes"}
    jetson["status"]["addresses"] = [{"type": "InternalIP", "address": "10.42.7.9"}]
    api.serve("/api/v1/nodes", {"items": [jetson]})
    return api


@pytest.fixture
def cluster(config_path: str) -> Iterator[Cluster]:
    """A connection to the stand-in API server."""
    with closing(Cluster.open(config_path)) as connection:
        yield connection


def _collected(cluster: Cluster) -> Collected:
    return collect(cluster, ["kai-scheduler"], Cleaner(frozenset({"let-me-in"})), lambda _: None)


def _objects(collected: Collected, name: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads(collected.files[f"objects/{name}.json"])


@pytest.mark.usefixtures("secretive")
def test_no_secret_that_was_planted_is_in_a_bundle(cluster: Cluster) -> None:
    collected = _collected(cluster)
    everything = "".join(f"{name}\n{content.decode()}" for name, content in collected.files.items())
    assert [secret for secret in PLANTED if secret in everything] == []
    assert "managedFields" not in everything


def test_secrets_and_config_maps_are_not_even_read(secretive: ApiServer, cluster: Cluster) -> None:
    _collected(cluster)
    asked = {request.path for request in secretive.asked}
    assert f"{KAI}/pods" in asked
    assert not [path for path in asked if "secrets" in path or "configmaps" in path]
    assert {request.method for request in secretive.asked} == {"GET"}


@pytest.mark.usefixtures("secretive")
def test_what_an_issue_report_needs_is_in_it(cluster: Cluster) -> None:
    collected = _collected(cluster)
    [binder] = _objects(collected, "pods.kai-scheduler")
    [container] = binder["spec"]["containers"]
    assert container["image"] == "ghcr.io/kai-scheduler/binder:v0.18.6"
    assert container["args"] == [f"--registry-password={HIDDEN}", "--v=4"]
    assert {variable["name"]: variable["value"] for variable in container["env"]} == {
        "DB": HIDDEN,
        "NVIDIA_VISIBLE_DEVICES": "0",
        "API_TOKEN": HIDDEN,
    }
    [jetson] = _objects(collected, "nodes")
    assert jetson["metadata"]["labels"] == {"nvidia.com/gpu.memory": "122880"}
    assert jetson["metadata"]["annotations"] == {"nvidia.com/gpu": "yes"}
    log = collected.files["logs/kai-scheduler/binder.main.log"].decode()
    assert "ERROR_LIBRARY_NOT_FOUND at 10:42:07" in log
    assert "listening on address-1:443" in log
    assert "on 127.0.0.1:80 too" in log
    assert "logs/kai-scheduler/binder.main.previous.log" in collected.files
    assert collected.left_out == []


@pytest.mark.usefixtures("secretive")
def test_of_a_tenants_pod_there_is_only_what_concerns_the_gpu(cluster: Cluster) -> None:
    [arm] = _objects(_collected(cluster), "pods-that-share-gpus")
    assert (arm["metadata"]["name"], arm["metadata"]["annotations"]) == ("arm", {"gpu-memory": "30720"})
    assert arm["spec"]["containers"] == [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    assert arm["status"]["phase"] == "Running"
    [main] = arm["status"]["containerStatuses"]
    assert main["lastState"] == {"terminated": {"exitCode": 1, "reason": "Error"}}
    [group] = _objects(_collected(cluster), "kai-podgroups")
    assert (group["spec"], group["metadata"]["annotations"]) == ({"queue": "q"}, {"gpu-memory": "30720"})


@pytest.mark.usefixtures("secretive")
def test_an_address_has_the_same_name_in_every_file(cluster: Cluster) -> None:
    collected = _collected(cluster)
    [event] = _objects(collected, "events.kai-scheduler")
    [pod] = _objects(collected, "pods.kai-scheduler")
    assert event["message"] == f"failed with token={HIDDEN} at {pod['status']['podIP']}"
    assert pod["status"]["podIP"].startswith("address-")


def test_what_the_user_may_not_read_is_listed(secretive: ApiServer, cluster: Cluster) -> None:
    secretive.fail(f"{KAI}/pods", 403)
    collected = _collected(cluster)
    [line] = collected.left_out
    assert line.startswith("pods.kai-scheduler: ")
    assert "refuses GET" in line
    assert "objects/nodes.json" in collected.files


def test_a_host_that_is_off_costs_its_logs_and_not_the_bundle() -> None:
    """The API server answers for its kubelet after 30 seconds."""
    pods = [_pod("kai-scheduler", name) for name in ("binder", "off")]

    def answer(request: httpx2.Request) -> httpx2.Response:
        match request.url.path:
            case "/api/v1/namespaces/kai-scheduler/pods":
                return httpx2.Response(200, json={"items": pods})
            case "/api/v1/namespaces/kai-scheduler/pods/off/log":
                raise httpx2.ReadTimeout("timed out")
            case path if path.endswith("/log"):
                return httpx2.Response(200, text="listening")
            case _:
                return httpx2.Response(200, json={"items": []})

    collected = _collected(connected(answer))
    assert collected.files["logs/kai-scheduler/binder.main.log"] == b"listening"
    assert [line.partition(" from ")[0] for line in collected.left_out] == [
        "logs/kai-scheduler/off.main.log: No answer",
        "logs/kai-scheduler/off.main.previous.log: No answer",
    ]


def test_more_than_the_most_is_cut_and_listed(
    secretive: ApiServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "OBJECTS", 2)
    monkeypatch.setattr(collecting, "LOG_BYTES", 10)
    secretive.serve("/api/v1/nodes", {"items": [node(name) for name in "abc"]})
    collected = _collected(cluster)
    assert [manifest["metadata"]["name"] for manifest in _objects(collected, "nodes")] == ["a", "b"]
    assert collected.left_out == ["nodes: 1 of 3, since 2 are the most"]
    assert collected.files["logs/kai-scheduler/binder.main.log"] == LOG[-10:].encode(), "the newest"


def test_a_cluster_that_does_not_answer_is_an_error(api: ApiServer, cluster: Cluster) -> None:
    api.fail("/api/v1/nodes", 503)
    with pytest.raises(ClusterUnreachableError):
        _collected(cluster)


@pytest.mark.parametrize("part", ["a", "token", "token-", "1.", "bearer "])
def test_a_hostile_line_is_read_once(part: str) -> None:
    """Read from each of its places to its end, this would take hours."""
    line = part * (300_000 // len(part))
    assert Cleaner().text(f"{line}\npassword: hunter2").endswith(f"\npassword: {HIDDEN}")


@pytest.fixture
def in_a_checkout(secretive: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command's surroundings: a stack file with a secret, a kubeconfig with a token, an empty folder."""
    stack = tmp_path / "Pulumi.jetson.yaml"
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", stack)
    with stack.open("a", encoding="utf-8") as text:
        text.write("  kai-anywhere:sudo-password: {secure: v1:hunter2-of-the-registry}\n")
    for module in ("operations.reading", "operations.target", "operations.bundle.commands"):
        monkeypatch.setattr(f"{module}.ROOT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", kubeconfig(secretive.url)))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "s3cr3t-in-an-argument")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_command_writes_one_archive_for_its_owner_alone(in_a_checkout: Path) -> None:
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz"])
    assert done.exit_code == ExitStatus.WELL, done.output
    [file] = in_a_checkout.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as archive:
        content = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]
    everything = "".join(content.values())
    assert [secret for secret in PLANTED if secret in everything] == []
    assert "Nothing else was left out." in content["b/README.md"]
    assert json.loads(content["b/versions.json"])["kubernetes"] == "v1.36.2"
    assert "kai-anywhere:settings" in json.loads(content["b/settings.json"])


def test_a_token_that_the_kubeconfig_has_in_a_file_is_hidden_too(in_a_checkout: Path, secretive: ApiServer) -> None:
    content = kubeconfig(secretive.url)
    content["users"] = [
        {"name": "admin", "user": {"tokenFile": "token"}},
        {"name": "gone", "user": {"tokenFile": "none"}},
    ]
    write_kubeconfig(in_a_checkout.parent / "config", content)
    (in_a_checkout.parent / "token").write_text("let-me-in\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz"])
    assert done.exit_code == ExitStatus.WELL, done.output
    with tarfile.open("b.tar.gz") as archive:
        logs = [archive.extractfile(name).read().decode() for name in archive.getnames()]  # type: ignore[union-attr]
    assert f"client token {HIDDEN}" in "".join(logs)
    assert "let-me-in" not in "".join(logs)


@pytest.mark.usefixtures("in_a_checkout")
def test_more_variables_with_secrets_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAI_ANYWHERE_SECRET_VARIABLES", "MINE")
    monkeypatch.setenv("MINE", "none")
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz"])
    assert done.exit_code == ExitStatus.WELL, done.output
    with tarfile.open("b.tar.gz") as archive:
        settings = archive.extractfile("b/settings.json").read().decode()  # type: ignore[union-attr]
    assert '"validation": "none"' not in settings
    assert f'"validation": "{HIDDEN}"' in settings


def test_what_is_missing_is_a_warning_and_the_bundle_is_there(in_a_checkout: Path, secretive: ApiServer) -> None:
    secretive.fail("/api/v1/nodes", 403)
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz", "--json"])
    assert done.exit_code == ExitStatus.WARNINGS
    summary = json.loads(done.stdout)
    assert summary["file"] == "b.tar.gz"
    assert "b.tar.gz" in {path.name for path in in_a_checkout.iterdir()}
    assert [line.split(":")[0] for line in summary["left_out"]] == ["nodes"]


def test_with_hosts_it_has_what_they_say_of_themselves_without_addresses_and_secrets(
    in_a_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = changed(jetson_examination(), "containerd.refused", "10.42.7.9: password=hunter2-of-the-registry")
    reports = hosts_reports(jetson(), {"jetson-1": answer})
    reports["jetson-2"] = HostReport(reports["jetson-1"].plan, trouble="Connection refused by 10.42.7.9")
    monkeypatch.setattr("operations.bundle.commands.hosts_of", lambda *_: reports)
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz", "--hosts"])
    assert done.exit_code == ExitStatus.WARNINGS
    assert "warning: not in it: host jetson-2: Connection refused" in done.stdout
    with tarfile.open(in_a_checkout / "b.tar.gz") as archive:
        content = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]
    assert [secret for secret in PLANTED if secret in "".join(content.values())] == []
    said = json.loads(content["b/hosts.json"])
    assert list(said) == ["jetson-1"]
    assert said["jetson-1"]["containerd"]["version"] == "2.1.4"
    assert "host jetson-2: Connection refused by address-" in content["b/README.md"]


def test_hosts_that_can_not_be_asked_at_all_are_a_warning_and_the_bundle_is_there(
    in_a_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise HostLookError("pulumi can't decrypt the secrets")

    monkeypatch.setattr("operations.bundle.commands.hosts_of", asked)
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz", "--hosts"])
    assert done.exit_code == ExitStatus.WARNINGS
    assert "warning: not in it: hosts: pulumi can't decrypt the secrets" in done.stdout
    with tarfile.open(in_a_checkout / "b.tar.gz") as archive:
        assert "b/hosts.json" not in archive.getnames()


def test_hosts_alone_are_asked_without_a_cluster_and_that_there_is_none_of_it_is_said(
    in_a_checkout: Path, secretive: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_hosts_alone(tmp_path / "Pulumi.jetson.yaml")
    monkeypatch.delenv("KUBECONFIG")
    secretive.asked.clear()
    reports = hosts_reports(jetson(), {"jetson-1": jetson_examination()})
    monkeypatch.setattr("operations.bundle.commands.hosts_of", lambda *_: reports)
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz", "--hosts", "--json"])
    assert done.exit_code == ExitStatus.WARNINGS, done.output
    summary = json.loads(done.stdout)
    assert summary["left_out"] == ["the cluster: stack 'jetson' prepares hosts alone, and no cluster was named"]
    assert set(summary["files"]) == {"README.md", "hosts.json", "settings.json", "versions.json"}
    assert secretive.asked == []
    with tarfile.open(in_a_checkout / "b.tar.gz") as archive:
        content = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]
    assert "kubernetes" not in json.loads(content["b/versions.json"])
    assert [secret for secret in PLANTED if secret in "".join(content.values())] == []


def test_hosts_of_a_stack_that_has_none_are_refused(in_a_checkout: Path) -> None:
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz", "--hosts"])
    assert "declares no hosts: docs/hosts.md says how. Leave --hosts out." in str(done.exception)
    assert list(in_a_checkout.iterdir()) == []


def test_a_folder_that_is_not_there_is_told_before_anything_is_asked(in_a_checkout: Path, secretive: ApiServer) -> None:
    secretive.asked.clear()
    done = CliRunner().invoke(app, ["bundle", "--output", "none/b.tar.gz"])
    assert "can't be made in none: there is no such folder. Choose another one with --output." in str(done.exception)
    assert secretive.asked == []
    assert list(in_a_checkout.iterdir()) == []


def test_a_file_that_is_there_is_not_overwritten(in_a_checkout: Path) -> None:
    (in_a_checkout / "b.tar.gz").write_text("mine", encoding="utf-8")
    done = CliRunner().invoke(app, ["bundle", "--output", "b.tar.gz"])
    assert "b.tar.gz exists. Choose another name with --output." in str(done.exception)
    assert (in_a_checkout / "b.tar.gz").read_text(encoding="utf-8") == "mine"
