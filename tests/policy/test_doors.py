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
            "-v $(pwd):/a",
            '-v "$(pwd)/a:/a"',
            "-v `pwd`:/a",
            "--volume=$(echo /):/a",
            "-v $(cat a | head -1):/a",
            "--mount src=$(pwd),dst=/a",
            "--name $(hostname) -v /:/host",
            "--name a-`id -u $(whoami)` --pid=host",
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


@pytest.mark.parametrize(
    "command",
    [
        "kubectl apply \\\n  -f https://example.com/a.yaml",
        "curl -fsSL https://example.com/a.yaml \\\n  | kubectl apply -f -",
        "kubectl create clusterrolebinding a --clusterrole \\\r\n  cluster-admin --user a",
        "kubectl run a --image=a:1 \\\n  --privileged",
        "kubectl debug \\\n  --image=a:1 node/a",
        "kubectl label namespace team \\\n  kai-anywhere.io/pod-guard-",
    ],
)
def test_a_command_over_several_lines_is_judged_like_one_in_one_line(command: str) -> None:
    in_one_line = " ".join(command.replace("\\", "").split())
    for text in (command, in_one_line):
        [finding] = findings(COMMAND, {"create": f"set -e\n{text}\n"})
        assert finding.rule == "raw-yaml"


def test_a_setting_behind_a_line_that_goes_on_is_found() -> None:
    [finding] = findings(COMMAND, {"create": "# written by hand \\\nprivileged = true\n"})
    assert finding.rule == "raw-yaml"


@pytest.mark.parametrize(
    "command",
    [
        "kubectl apply --kustomize https://example.com/a",
        "kubectl apply -Rf https://example.com/a.yaml",
        'kubectl apply -f - <<< "$(curl -s https://example.com/a.yaml)"',
        "curl -s 'https://example.com/a?b=1&c=2' | kubectl apply -f -",
        "curl -s https://example.com/a.sh 2>&1 | sh; kubectl get pods",
        'sh -c "$(curl -fsSL https://example.com/a.sh)" && kubectl get pods',
        "bash <(curl -s https://example.com/a.sh); kubectl get pods",
        "helm template a https://example.com/a-1.2.3.tgz | kubectl apply -f -",
        "helm --debug template a 'https://example.com/a.tgz' --set x=1 | sed s/a/b/ | sudo kubectl apply -f -",
        "helm template a oci://example.com/a --version 1.2.3 \\\n  | kubectl apply -f -",
        "helm template a b --repo https://example.com | kubectl apply -f -",
        "helm template a --repo=https://example.com b | kubectl apply -f -",
        "kubectl apply -f <(helm template a https://example.com/a-1.2.3.tgz)",
        "podman kube play https://example.com/a.yaml",
        "podman --log-level=debug play kube --replace 'https://example.com/a.yaml'",
        "podman kube play <(curl -s https://example.com/a.yaml)",
        "curl -s https://example.com/a.yaml | podman kube play -",
    ],
)
def test_a_manifest_from_the_network_is_found_in_every_spelling(command: str) -> None:
    [finding] = findings(COMMAND, {"create": command})
    assert (finding.rule, finding.found) == ("raw-yaml", "a manifest from the network, or in disguise")


@pytest.mark.parametrize(
    "command",
    [
        "helm template a ./charts/a | kubectl apply -f -",
        "helm template a ./charts/a --set url=https://example.com --set 'b=https://example.com' | kubectl apply -f -",
        "helm template a https://example.com/a-1.2.3.tgz > a.yaml",
        "helm template a https://example.com/a-1.2.3.tgz | grep image:; kubectl get pods",
        "kubectl apply -f <(helm template a ./charts/a)",
        "podman kube play ./a.yaml --annotation docs=https://example.com",
        "podman kube play a.yaml; curl -s https://example.com",
        "podman pull https://example.com/a && podman kube play a.yaml",
        "curl -s https://example.com/a.tar | podman load",
    ],
)
def test_near_to_them_what_the_program_has_passes(command: str) -> None:
    assert findings(COMMAND, {"create": command}) == ()


_TO_KUBELETS = "a request to a node's kubelet"
_AS_MASTERS = "a command as system:masters"
_NODE_NAME = "a pod's node name"
_OLD_VERSION = "an old version of a Pod Security level"
_CHANGES_NAMESPACES = "a role that may change namespaces"
_EDITS_SYSTEM = "an editor of kube-system"


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("kubectl get --raw /api/v1/nodes/x86-1/proxy/run/team/web/app?cmd=id", _TO_KUBELETS),
        ("kubectl get --raw='/api/v1/nodes/x86-1/proxy/logs/'", _TO_KUBELETS),
        ('kubectl get --raw "/api/v1/nodes/$NODE:10250/proxy/exec/team/web/app"', _TO_KUBELETS),
        (
            "kubectl create --raw /api/v1/nodes/$(kubectl get nodes -o name | head -1)/proxy/run/a/b/c -f -",
            _TO_KUBELETS,
        ),
        ("kubectl get --raw /api/v1/nodes/x86-1/proxy/metrics/../run/a/b/c", _TO_KUBELETS),
        ("kubectl proxy & curl localhost:8001/api/v1/nodes/x86-1/proxy/exec/a/b/c", _TO_KUBELETS),
        ("kubectl --as-group system:masters --as a delete ns b", _AS_MASTERS),
        ("kubectl get secrets --as=a --as-group=system:masters", _AS_MASTERS),
        ("helm install a ./b --kube-as-group a; oc get pods --as a --as-group 'system:masters'", _AS_MASTERS),
        ('kubectl run a --image=a:1 --overrides=\'{"spec":{"nodeName":"x86-1"}}\'', _NODE_NAME),
        ('kubectl run a --image=a:1 --overrides \'\n{\n  "spec": {\n    "nodeName": "$NODE"\n  }\n}\'', _NODE_NAME),
        ('kubectl run a --overrides "{\\"spec\\":{\\"nodeName\\":\\"x86-1\\"}}" --image=a:1', _NODE_NAME),
        ('kubectl run a --image=a:1 --overrides=\'{"a":"b; c","spec":{"nodeName":"x86-1"}}\'', _NODE_NAME),
        ('kubectl patch deploy a -p \'{"spec":{"template":{"spec":{"nodeName":"x86-1"}}}}\'', _NODE_NAME),
        (
            (
                "kubectl patch deploy a --type=json -p "
                '\'[{"op":"add","path":"/spec/template/spec/nodeName","value":"x86-1"}]\''
            ),
            _NODE_NAME,
        ),
        ("kubectl label ns team pod-security.kubernetes.io/enforce-version=v1.0", _OLD_VERSION),
        ("kubectl label ns team 'pod-security.kubernetes.io/enforce-version'=\"v1.22\"", _OLD_VERSION),
        ("kubectl create role a --verb=get,patch --resource=namespaces", _CHANGES_NAMESPACES),
        ("kubectl create clusterrole a --resource pods,ns --verb get --verb 'update'", _CHANGES_NAMESPACES),
        ("kubectl create clusterrole a --verb=patch --resource=namespaces/status", _CHANGES_NAMESPACES),
        ("kubectl create rolebinding a --clusterrole=edit --user=a -n kube-system", _EDITS_SYSTEM),
        ("kubectl --namespace kube-system create rolebinding a --clusterrole 'admin' --user=a", _EDITS_SYSTEM),
        ("kubectl create rolebinding a --namespace=kube-system --user=a --clusterrole=edit", _EDITS_SYSTEM),
    ],
)
def test_a_command_that_gets_rights_by_a_side_door_is_found_and_told(command: str, rule: str) -> None:
    [finding] = findings(COMMAND, {"create": f"set -e\n{command}\n"})
    assert (finding.rule, finding.found) == ("raw-yaml", rule)


@pytest.mark.parametrize(
    "words", [["get", "--raw", "/api/v1/nodes/a/proxy/run/b/c/d"], ["--as-group", "system:masters"]]
)
def test_a_side_door_is_found_in_the_words_of_a_container(words: list[str]) -> None:
    for key, value in (("command", ["kubectl", *words]), ("args", ["-c", f"kubectl {' '.join(words)}"])):
        [finding] = findings(POD, changed(pod(), f"spec.containers.0.{key}", value))
        assert finding.rule == "raw-yaml"


@pytest.mark.parametrize(
    "command",
    [
        "kubectl get --raw /api/v1/nodes/x86-1/proxy/metrics/cadvisor | grep memory",
        'kubectl get --raw "/api/v1/nodes/$NODE/proxy/stats/summary?only_cpu_and_memory=true"',
        "kubectl get --raw /api/v1/nodes/x86-1/proxy/configz",
        "kubectl get --raw /api/v1/nodes/x86-1/status; kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes",
        "kubectl get --raw /api/v1/namespaces/team/services/web:80/proxy/run",
        "kubectl auth can-i get pods --as a --as-group=team --as-group system:authenticated",
        "kubectl get pods --as system:serviceaccount:team:web",
        'kubectl run a --image=a:1 --overrides=\'{"spec":{"nodeSelector":{"kubernetes.io/arch":"arm64"}}}\'',
        'kubectl run a --image=a:1 --overrides=\'{"spec":{"nodeName":""}}\'',
        "kubectl get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName",
        "kubectl run a --overrides='{}' --image=a:1; kubectl get pods -o json | jq '{\"nodeName\": \"x\"}'",
        "kubectl get pods --field-selector spec.nodeName=x86-1",
        "kubectl label ns team pod-security.kubernetes.io/enforce-version=v1.30",
        "kubectl label ns team pod-security.kubernetes.io/enforce-version=latest",
        "kubectl label ns team pod-security.kubernetes.io/warn-version=v1.0",
        "kubectl get ns -l pod-security.kubernetes.io/enforce-version=v1.0",
        "kubectl create clusterrole a --verb=get,list,create --resource=namespaces",
        "kubectl create clusterrole a --verb=patch --resource=pods,namespaces.example.com",
        "kubectl create role a --verb=get --resource=namespaces; kubectl create role b --verb=patch --resource=pods",
        "kubectl create rolebinding a --clusterrole=edit --user=a -n team",
        "kubectl create rolebinding a --clusterrole=edit --serviceaccount=kube-system:a -n team",
        "kubectl create rolebinding a --clusterrole=view --user=a -n kube-system",
        "kubectl create rolebinding a --clusterrole=edit --user=a -n kube-system-tools",
    ],
)
def test_near_to_a_side_door_a_harmless_command_passes(command: str) -> None:
    assert findings(COMMAND, {"create": f"set -e\n{command}\n"}) == ()


_AS_JSON_PATCH = (
    "kubectl patch ns team --type=json -p '"
    '[{{"op":"add","path":"/metadata/labels/pod-security.kubernetes.io~1enforce{}","value":"{}"}}]\''
)
_AS_MERGE_PATCH = 'kubectl patch ns team -p \'{{"metadata":{{"labels":{{"{}":{}}}}}}}\''


@pytest.mark.parametrize(
    "command",
    [
        _AS_JSON_PATCH.format("", "privileged"),
        _AS_JSON_PATCH.format("-version", "v1.0"),
        (
            "kubectl patch ns team --type=json -p '"
            '[{"value":"v1.9","op":"add","path":"/metadata/labels/pod-security.kubernetes.io~1enforce-version"}]\''
        ),
        _AS_MERGE_PATCH.format("pod-security.kubernetes.io/enforce", "null"),
        _AS_MERGE_PATCH.format("pod-security.kubernetes.io/enforce-version", ' "v1.18"'),
        _AS_MERGE_PATCH.format("kai-anywhere.io/pod-guard", "null"),
        _AS_MERGE_PATCH.format("kai-anywhere.io/pod-guard", ' "off"'),
        'kubectl label ns team kai-anywhere.io/pod-guard=""',
        "kubectl create clusterrole a --verb='*' --resource=pods",
        "kubectl create role a --resource=roles --verb get,escalate",
        "kubectl create clusterrole a --verb=get --resource=nodes/proxy",
        "kubectl create clusterrolebinding a --clusterrole=edit --user=a",
        'kubectl run a --image=a:1 --overrides="{\\"spec\\":{\\"hostNetwork\\":true}}"',
        'kubectl patch deployment a -p "{\\"securityContext\\":{\\"privileged\\":true}}"',
        'kubectl patch deployment a -p \'{"securityContext":{"capabilities":{"add":["CHOWN","SYS_ADMIN"]}}}\'',
        "helm install a b --set securityContext.capabilities.add[0]=NET_ADMIN",
        "helm install a b --set volumes[0].hostPath.path=/",
        "helm install a b --set podSecurityContext.seccompProfile.type=Unconfined",
        "kubectl set env daemonset a NVIDIA_VISIBLE_DEVICES=all",
    ],
)
def test_a_command_that_sets_what_an_object_may_not_say_is_found(command: str) -> None:
    [finding] = findings(COMMAND, {"create": command})
    assert finding.rule == "raw-yaml"


@pytest.mark.parametrize(
    "command",
    [
        _AS_JSON_PATCH.format("", "restricted"),
        _AS_JSON_PATCH.format("-version", "v1.30"),
        _AS_MERGE_PATCH.format("kai-anywhere.io/pod-guard", '"enforce"'),
        "kubectl create clusterrole a --verb=get,list --resource=pods,nodes",
        "kubectl create rolebinding a --clusterrole=edit --user=a",
        "sh -c 'kubectl annotate node a address=$(curl -s https://example.com)'",
        "kubectl apply --kustomize ./a && kubectl apply -Rf manifests",
        'kubectl run a --image=a:1 --overrides="{\\"spec\\":{\\"hostNetwork\\":false}}"',
        'kubectl patch deployment a -p \'{"capabilities":{"add":["NET_BIND_SERVICE"],"drop":["ALL"]}}\'',
        "helm install a b --set securityContext.capabilities.drop[0]=ALL",
        "kubectl set env daemonset a NVIDIA_VISIBLE_DEVICES=void",
    ],
)
def test_near_to_them_harmless_commands_pass(command: str) -> None:
    assert findings(COMMAND, {"create": command}) == ()


_OPEN = "pod-security.kubernetes.io/enforce=privileged"


@pytest.mark.parametrize(
    "command",
    [
        f"kubectl get ns -l {_OPEN}",
        f"kubectl get ns -l{_OPEN} -o name",
        f"kubectl get ns -l 'team=a,{_OPEN},!b'",
        f"kubectl get pods --selector={_OPEN}",
        f'kubectl get ns --selector "{_OPEN}"',
        f"kubectl label ns -l {_OPEN} reviewed=yes",
        "kubectl get nodes -l kai-anywhere.io/platform=tegra",
    ],
)
def test_a_command_that_selects_by_a_label_passes(command: str) -> None:
    assert findings(COMMAND, {"create": command}) == ()
    assert findings(POD, changed(pod(), "spec.containers.0.command", command.split())) == ()


@pytest.mark.parametrize(
    "command",
    [
        f"kubectl label ns -l team=a {_OPEN}",
        f"kubectl label ns team -l= {_OPEN}",
        f"kubectl label ns team -l '' {_OPEN}",
        f"kubectl label ns team --selector= '{_OPEN}'",
        f"kubectl label ns -l {_OPEN} {_OPEN}",
        f"kubectl get ns -l {_OPEN}; kubectl label ns team {_OPEN}",
        f'kubectl get ns -l "$(kubectl label ns team {_OPEN})"',
        f"bash -lc 'kubectl label ns team {_OPEN}'",
        f"bash -l <<< 'kubectl label ns team {_OPEN}'",
        "kubectl label node -l team=a kai-anywhere.io/platform=tegra",
    ],
)
def test_a_command_that_selects_and_sets_a_label_is_found(command: str) -> None:
    [finding] = findings(COMMAND, {"create": command})
    assert finding.rule == "raw-yaml"


def test_an_empty_selector_among_the_words_of_a_container_hides_no_label() -> None:
    words = ["kubectl", "label", "ns", "team", "-l", "", _OPEN]
    [finding] = findings(POD, changed(pod(), "spec.containers.0.command", words))
    assert finding.rule == "raw-yaml"


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


@pytest.mark.parametrize(
    "text",
    [
        *(f"a: 1{end}---{end}{{}}" for end in ("\r", "\x85", "\u2028", "\u2029")),
        *("a: 1\n---\n\ufeff{}", "a: 1\r\n---\r\n{}"),
    ],
)
def test_a_manifest_is_found_behind_every_line_break_of_yaml(text: str) -> None:
    pod_text = "apiVersion: v1\nkind: Pod\nspec: {containers: [{ports: [{hostPort: 22}]}]}\n"
    assert {finding.rule for finding in findings(CONFIG_MAP, _config_map(text.replace("{}", pod_text)))} == {
        "host-access"
    }


_SYS_ADMIN: Json = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "a", "annotations": {"note": "NOTE"}},
    "spec": {"containers": [{"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
}
_JSON = json.dumps(_SYS_ADMIN)
_YAML = yaml.safe_dump(_SYS_ADMIN)


@pytest.mark.parametrize(
    "text",
    [
        _JSON,
        json.dumps(changed(_SYS_ADMIN, "metadata.annotations.note", "\U0001f600")),
        f"\ufeff{_JSON}",
        f'{{"a": 1}}\n{_JSON}',
        f'{_JSON}{{"a": 1}}',
        f"{_JSON}\n{{",
        _JSON.replace("kind", "k\\u0069nd").replace("capabilities", "c\\u0061pabilities"),
        _YAML,
        *(_YAML.replace("NOTE", note) for note in ("2001-99-99", "!!int x", "2001-01-01T99:99:99Z", "0x_", "._")),
        f"{_YAML}...\nx: [",
        f"x: 1\n...\n{_YAML}",
        f"services: {{a: {{image: a:1}}}}\n{_YAML}",
    ],
)
def test_a_manifest_that_kubectl_reads_is_judged_however_it_is_written(text: str) -> None:
    [finding] = findings(CONFIG_MAP, _config_map(text))
    assert finding.rule == "host-access"
    assert finding.path.endswith("spec.containers[0].securityContext.capabilities.add[0]")
    assert not findings(CONFIG_MAP, _config_map(text.replace("SYS_ADMIN", "CHOWN")))


def test_an_escaped_key_is_worth_a_look() -> None:
    pod = {"kind": "Pod", "spec": {"containers": [{"securityContext": {"privileged": True}}]}}
    escaped = json.dumps(pod)
    for key in ("containers", "securityContext", "privileged"):
        escaped = escaped.replace(f'"{key}"', f'"\\u{ord(key[0]):04x}{key[1:]}"')
    assert "privileged" not in escaped
    assert {finding.rule for finding in findings(CONFIG_MAP, _config_map(escaped))} == {"privileged"}


@pytest.mark.parametrize("services", ["services: {a: {image: a:1}}\n", ""])
def test_chart_values_are_judged_whatever_they_resemble(services: str) -> None:
    values = f"{services}hostNetwork: true\n"
    chart = {"metadata": {"name": "a"}, "spec": {"chart": "app", "version": "1.2.3", "valuesContent": values}}
    assert {finding.path for finding in findings("kubernetes:helm.cattle.io/v1:HelmChart", chart)} == {
        "spec.valuesContent(text).hostNetwork"
    }


@pytest.mark.parametrize("more", ["", "x-log: {}\nnetworks: {}\n"])
def test_a_compose_file_in_a_config_map_is_no_pod(more: str) -> None:
    compose = f"{more}services:\n  a: {{image: a:1, privileged: true}}\n"
    assert not findings(CONFIG_MAP, _config_map(compose))


def test_more_json_than_any_manifest_has_is_refused_at_once() -> None:
    result = findings(CONFIG_MAP, _config_map('{"apiVersion":1}' * 100_000))
    assert {finding.found for finding in result} == {Hole.TOO_LARGE.value}


def test_a_text_that_grows_when_it_is_unpacked_is_refused_at_once() -> None:
    bomb = _encoded(gzip.compress(b"apiVersion: v1 " + b" " * 100_000_000))
    assert {finding.found for finding in findings(CONFIG_MAP, _config_map(bomb))} == {Hole.TOO_LARGE.value}


@pytest.mark.parametrize("levels", range(MAX_TEXTS + 4))
def test_texts_in_texts_hide_nothing(levels: int) -> None:
    text = _HOST_PID
    for _ in range(levels):
        text = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": text}})
    result = findings(CONFIG_MAP, _config_map(text))
    if levels < MAX_TEXTS:
        assert {finding.rule for finding in result} == {"host-access"}
    else:
        assert {finding.found for finding in result} == {Hole.TOO_DEEP.value}


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
