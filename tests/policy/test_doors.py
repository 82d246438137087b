"""Ways around the rules by spelling: containers on hosts, encodings, nesting, and secrets by what they look like."""

import base64
import gzip
import json
from typing import Any

import pytest
import yaml
from pulumi import StringAsset

from policy.reading import MAX_TEXTS, Hole
from tests.policy.objects import Json, changed, findings, pod

COMMAND = "command:remote:Command"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
POD = "kubernetes:core/v1:Pod"
_HOST_PID = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostPID: true, containers: []}\n"


def _config_map(text: str) -> Json:
    return {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": text}}


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "options",
    [
        *(
            "-v /:/host",
            "-v/:/host",
            "-v=/:/host",
            "-itv /:/host",
            "-dv/:/host",
            "-v ~/a:/a",
            "-v ./a:/a",
            "-v $HOME:/a",
        ),
        *("--volume /:/host", "--volume=/:/host", '--volume "/:/host"', "'-v' '/:/host'", "--volumes-from a"),
        *("--mount type=bind,src=/,dst=/host", "--mount=source=/,target=/host,type=bind", "--device /dev/mem"),
        *(
            "--privileged",
            "--privileged=true",
            "--pid=host",
            "--pid host",
            "--net=host",
            "--network host",
            "--ipc=host",
        ),
        *("--uts=host", "--userns=host", "--cgroupns=host", "--cap-add SYS_ADMIN", "--cap-add=ALL"),
        *("--security-opt seccomp=unconfined", "--security-opt=label:disable", "--device-cgroup-rule='c *:* rmw'"),
        "--rm \\\n  -v /:/host",
    ],
)
@pytest.mark.parametrize("start", ["docker run", "sudo podman --log-level=debug run", "D=nerdctl; $D container create"])
def test_a_container_that_takes_something_of_its_host_is_found_in_every_spelling(start: str, options: str) -> None:
    [finding] = findings(COMMAND, {"create": f"set -e\n{start} {options} app:1"})
    assert (finding.rule, finding.path) == ("raw-yaml", "create(text)")
    assert "past Kubernetes" in finding.why


@pytest.mark.parametrize(
    "command",
    [
        "docker volume create --opt type=none --opt o=bind --opt device=/ a",
        "docker service create --mount type=bind,source=/,target=/host a:1",
        "docker exec --privileged a sh",
        "docker plugin install --grant-all-permissions a",
        "ctr run --mount type=bind,src=/,dst=/host,options=rbind docker.io/a:1 a",
        "ctr run --net-host docker.io/a:1 a",
    ],
)
def test_other_commands_of_container_engines_are_found(command: str) -> None:
    assert [finding.rule for finding in findings(COMMAND, {"create": command})] == ["raw-yaml"]


def test_a_compose_file_that_is_copied_to_a_host_is_judged() -> None:
    compose = "services:\n  a:\n    image: a:1\n    volumes: ['/:/host']\n"
    props: Any = {"remotePath": "/opt/compose.yaml", "source": StringAsset(compose)}
    [finding] = findings("command:remote:CopyToRemote", props)
    assert (finding.rule, finding.path) == ("raw-yaml", "source(text).services.a.volumes")


@pytest.mark.parametrize(
    "encoded",
    [
        _encoded(_encoded(_HOST_PID.encode()).encode()),
        _encoded(_encoded(_encoded(_HOST_PID.encode()).encode()).encode()),
        _encoded(gzip.compress(_HOST_PID.encode())),
        _encoded(_HOST_PID.encode("utf-16")),
        json.dumps(json.dumps(_HOST_PID)),
    ],
)
def test_a_manifest_is_found_however_often_it_is_encoded(encoded: str) -> None:
    assert {finding.rule for finding in findings(CONFIG_MAP, _config_map(encoded))} == {"host-access"}


def test_a_text_that_grows_when_it_is_unpacked_is_refused_at_once() -> None:
    bomb = _encoded(gzip.compress(b"apiVersion: v1 " + b" " * 100_000_000))
    assert {finding.found for finding in findings(CONFIG_MAP, _config_map(bomb))} == {Hole.TOO_LARGE.value}


@pytest.mark.parametrize("levels", range(MAX_TEXTS + 4))
def test_texts_in_texts_hide_nothing(levels: int) -> None:
    text = _HOST_PID
    for _ in range(levels):
        text = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": text}})
    found = findings(CONFIG_MAP, _config_map(text))
    if levels < MAX_TEXTS:
        assert {finding.rule for finding in found} == {"host-access"}
    else:
        assert {finding.found for finding in found} == {Hole.TOO_DEEP.value}


# Put together here, so that no tool takes them for secrets that somebody lost.
SECRETS = [
    "AKIA" + "0123456789ABCDEF",
    "ASIA" + "0123456789ABCDEF",
    "aws_secret_access_key = " + "a1" * 20,
    "AIza" + "a1" * 17 + "b",
    "DefaultEndpointsProtocol=https;AccountKey=" + "a1" * 43 + "==",
    "-----BEGIN " + "PRIVATE KEY-----",
    "-----BEGIN EC " + "PRIVATE KEY-----",
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    '{"private_key": "-----BEGIN ' + 'PRIVATE KEY-----\\nMII"}',
    "Authorization: Bearer " + "a1" * 12,
    "Authorization: Basic " + "dXNlcjpodW50ZXIy" + "MTIzNA==",
    "eyJ" + "a1" * 10 + ".eyJ" + "a1" * 10 + "." + "a1" * 10,
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 20,
    "glpat-" + "a1" * 10,
    "xoxb-" + "12345678901",
    "sk_live_" + "a1" * 12,
    "npm_" + "a1" * 18,
    "hf_" + "ab" * 17,
    "nvapi-" + "a1" * 30,
    "sk-ant-" + "a1" * 20,
    "hvs." + "a1" * 14,
    "dckr_pat_" + "a1" * 13,
    "AGE-SECRET-KEY-1" + "Q1" * 29,
    "postgres://user:" + "hunter2@db/x",
    "redis://:" + "hunter2@redis",
    "login --password " + "hunter2",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    ("token", "base", "path"),
    [
        (POD, pod(), "spec.containers.0.env.0.value"),
        (POD, pod(), "spec.containers.0.args"),
        (POD, pod(), "metadata.annotations.note"),
        (CONFIG_MAP, _config_map(""), "data.a"),
        ("kubernetes:example.com/v1:Thing", {"metadata": {"name": "a"}, "spec": {}}, "spec.anything"),
        (COMMAND, {"create": "true"}, "create"),
    ],
)
def test_a_secret_is_found_by_what_it_looks_like_and_never_shown(
    token: str, base: Json, path: str, secret: str
) -> None:
    value: object = [secret] if path.endswith("args") else secret
    [finding] = findings(token, changed(base, path, value))
    assert finding.rule == "secrets-and-host-commands"
    assert secret not in finding.message()


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_where_it_is_handed_over_as_one_is_no_finding(secret: str) -> None:
    assert findings("kubernetes:core/v1:Secret", {"kind": "Secret", "stringData": {"a": secret}}) == ()
    assert findings(COMMAND, {"create": "login", "stdin": secret, "connection": {"privateKey": secret}}) == ()
