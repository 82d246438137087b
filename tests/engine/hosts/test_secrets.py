"""Secrets of every kind are planted in a whole stack; none is found in anything that others read, or that is kept."""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
import toolchain
from cluster.access.client import Cluster
from operations.bundle.clean import Cleaner
from operations.bundle.collect import collect
from operations.bundle.commands import _secrets
from operations.engine_events import record_of
from operations.pull_request.comment import Occasion, preview_comment
from operations.pull_request.review import events
from operations.redaction import Redactor
from testbed.hosts.machines import jetson, with_sudo
from testbed.hosts.sshd import Machine, Sshd, needs_sshd
from testbed.hosts.stacks import LOGIN_KEY, HostsStack, ssh_host, tegra_stack
from testbed.simulated import stack_settings
from testbed.stacks import changed

pytestmark = needs_sshd

_SUDO = "sudo-password"
PLANTED = {
    _SUDO: "planted-sudo 7Q1",
    "passphrase": "planted-passphrase-7Q2",
    "AWS_SECRET_ACCESS_KEY": "planted-aws-7Q3",
    "GITHUB_TOKEN": "planted-github-7Q4",
    "registry": "planted-registry-7Q5",
    "variable": "planted-variable-7Q6",
}
_KAI = "/api/v1/namespaces/kai-scheduler"


@pytest.fixture(scope="module")
def token(api: httpx2.Client) -> str:
    """Of an account that may do everything, as many kubeconfigs have it."""
    account = {"name": "planted", "namespace": "default"}
    api.post("/api/v1/namespaces/default/serviceaccounts", json={"metadata": account}).raise_for_status()
    binding = {
        "metadata": {"name": "planted"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", json=binding).raise_for_status()
    made = api.post(
        "/api/v1/namespaces/default/serviceaccounts/planted/token", json={"spec": {"expirationSeconds": 7200}}
    )
    made.raise_for_status()
    return str(made.json()["status"]["token"])


@pytest.fixture(scope="module")
def kubeconfig(cluster: simulator.ControlPlane, token: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    content = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    file = tmp_path_factory.mktemp("kubeconfig") / "config"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def machine(shared_server: Sshd) -> Machine:
    return with_sudo(jetson(shared_server), PLANTED[_SUDO])


@pytest.fixture(scope="module")
def stack(
    shared_server: Sshd,
    machine: Machine,
    cluster: simulator.ControlPlane,
    kubeconfig: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[HostsStack]:
    host = ssh_host(shared_server, machine, sudo_password_secret=_SUDO)
    settings = stack_settings(tegra_stack({"jetson-1": host}, installs="everything"), cluster)
    made = HostsStack(
        tmp_path_factory.mktemp("stack") / "own",
        changed(settings, "cluster.kubeconfig", str(kubeconfig)),
        {LOGIN_KEY: shared_server.private_key, _SUDO: PLANTED[_SUDO]},
        programs=toolchain.ENGINE,
        passphrase=PLANTED["passphrase"],
    )
    made.environment |= {name: PLANTED[name] for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN")}
    yield made
    if made.resources():
        made.destroy()


@pytest.fixture(scope="module")
def secrets(shared_server: Sshd, token: str) -> dict[str, str]:
    """Every planted value; of keys and tokens a part that nothing else has."""
    return PLANTED | {"login key": shared_server.private_key.splitlines()[2], "token": token.split(".")[2]}


def _holding(everything: dict[str, str], secrets: dict[str, str]) -> list[tuple[str, str]]:
    forms = {
        name: {value, base64.b64encode(value.encode()).decode().rstrip("="), json.dumps(value)[1:-1]}
        for name, value in secrets.items()
    }
    return [
        (where, name)
        for where, text in everything.items()
        for name, values in forms.items()
        if any(value in text for value in values)
    ]


def test_no_planted_secret_is_in_the_state_the_stack_file_or_the_event_log(
    stack: HostsStack, secrets: dict[str, str]
) -> None:
    stack.up()
    # Before the next command, which takes the event log away.
    everything = {
        str(path.relative_to(stack.folder)): path.read_text(encoding="utf-8", errors="replace")
        for path in stack.folder.rglob("*")
        if path.is_file()
    }
    assert {"events.jsonl", "Pulumi.test.yaml"} <= everything.keys()
    assert any(name.startswith("tmp/kubeconfig") for name in everything), "the Kubernetes provider leaves a copy there"
    assert '"ciphertext"' in json.dumps(stack.resources()), "the state must know secrets"
    assert _holding(everything, secrets) == []


def test_no_planted_secret_is_in_the_comment_of_a_pull_request(
    stack: HostsStack, secrets: dict[str, str], tmp_path: Path
) -> None:
    good = stack.settings
    # Everything of the host runs again: its commands and what they are given stand in the comment.
    stack.settings = changed(good, "hosts.jetson-1.revision", 5)
    preview = stack.preview("--diff")
    stack.settings = good
    (tmp_path / "events.jsonl").write_bytes((stack.folder / "events.jsonl").read_bytes())
    comment = preview_comment(record_of(events(tmp_path)), Occasion("test", 0), Redactor())
    assert "hosts-jetson-1-configured" in comment
    everything = {"comment": comment, "log": (tmp_path / "events.jsonl").read_text(encoding="utf-8")}
    assert _holding(everything | {"preview": preview.output}, secrets) == []


def test_no_planted_secret_is_in_a_bundle(
    stack: HostsStack, api: httpx2.Client, kubeconfig: Path, secrets: dict[str, str], token: str
) -> None:
    login = base64.b64encode(f"user:{PLANTED['registry']}".encode()).decode()
    registry = {"auths": {"registry.example.com": {"auth": login, "password": PLANTED["registry"]}}}
    api.post(
        f"{_KAI}/secrets",
        json={
            "metadata": {"name": "planted"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": json.dumps(registry)},
        },
    ).raise_for_status()
    container = {
        "name": "app",
        "image": "app:1",
        "env": [{"name": "PASSWORD", "value": PLANTED["variable"]}],
        "args": [f"--token={PLANTED['variable']}", f"--bearer={token}"],
    }
    pod = {"metadata": {"name": "planted"}, "spec": {"containers": [container], "nodeName": "cpu-1"}}
    api.post(f"{_KAI}/pods", json=pod).raise_for_status()
    with closing(Cluster.open(str(kubeconfig))) as cluster:
        cleaner = Cleaner(frozenset(_secrets(cluster)))
        collected = collect(cluster, {"kai-scheduler", "gpu-operator"}, cleaner, lambda _: None)
    everything = {name: content.decode(errors="replace") for name, content in collected.files.items()}
    everything["settings"] = json.dumps(cleaner.component(stack.settings))
    assert any("planted" in text for text in everything.values()), "the pod itself is there"
    assert _holding(everything, secrets) == []
