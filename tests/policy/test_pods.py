"""Every rule about pods: a compliant pod passes, and one change makes exactly one finding."""

import base64
import json
from typing import Any

import pytest
import yaml

from tests.policy.objects import UNKNOWN, Json, carriers, changed, findings, pod, rules_and_paths

POD = "kubernetes:core/v1:Pod"
_CONTAINER = "spec.containers.0"
_CONTEXT = f"{_CONTAINER}.securityContext"
_VISIBLE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}

CHANGES: list[tuple[str, str, object, str]] = [
    ("privileged", f"{_CONTEXT}.privileged", True, "spec.containers[0].securityContext.privileged"),
    ("privileged", f"{_CONTEXT}.privileged", "true", "spec.containers[0].securityContext.privileged"),
    ("privileged", f"{_CONTEXT}.privileged", 1.0, "spec.containers[0].securityContext.privileged"),
    ("host-paths", "spec.volumes.0.hostPath", {"path": "/var/run"}, "spec.volumes[0].hostPath"),
    ("host-paths", "spec.volumes.0.hostPath", {"path": ""}, "spec.volumes[0].hostPath"),
    (
        "host-paths",
        f"{_CONTAINER}.volumeMounts.0.subPath",
        "../../etc",
        "spec.containers[0].volumeMounts[0].subPath",
    ),
    ("host-access", "spec.hostPID", True, "spec.hostPID"),
    ("host-access", "spec.hostIPC", True, "spec.hostIPC"),
    ("host-access", "spec.hostNetwork", True, "spec.hostNetwork"),
    ("host-access", f"{_CONTAINER}.ports.0.hostPort", 80.0, "spec.containers[0].ports[0].hostPort"),
    (
        "host-access",
        f"{_CONTAINER}.livenessProbe.httpGet.host",
        "10.0.0.1",
        "spec.containers[0].livenessProbe.httpGet.host",
    ),
    ("host-access", f"{_CONTEXT}.procMount", "Unmasked", "spec.containers[0].securityContext.procMount"),
    (
        "host-access",
        "spec.securityContext.windowsOptions",
        {"hostProcess": True},
        "spec.securityContext.windowsOptions.hostProcess",
    ),
    *[
        (
            "host-access",
            f"{_CONTEXT}.capabilities.add",
            ["NET_BIND_SERVICE", capability],
            "spec.containers[0].securityContext.capabilities.add[1]",
        )
        for capability in ("SYS_ADMIN", "sys_admin", "CAP_SYS_ADMIN", "ALL", "NET_RAW")
    ],
    (
        "host-access",
        "spec.securityContext.sysctls.0.name",
        "kernel.msgmax",
        "spec.securityContext.sysctls[0].name",
    ),
    (
        "host-access",
        "spec.securityContext.seccompProfile.type",
        "Unconfined",
        "spec.securityContext.seccompProfile.type",
    ),
    (
        "host-access",
        f"{_CONTEXT}.appArmorProfile.type",
        "Unconfined",
        "spec.containers[0].securityContext.appArmorProfile.type",
    ),
    (
        "host-access",
        f"{_CONTEXT}.seLinuxOptions.type",
        "spc_t",
        "spec.containers[0].securityContext.seLinuxOptions.type",
    ),
    (
        "host-access",
        f"{_CONTEXT}.seLinuxOptions.user",
        "system_u",
        "spec.containers[0].securityContext.seLinuxOptions.user",
    ),
    (
        "host-access",
        "metadata.annotations.container~apparmor~security~beta~kubernetes~io/app",
        "unconfined",
        'metadata.annotations["container.apparmor.security.beta.kubernetes.io/app"]',
    ),
    (
        "devices",
        f"{_CONTAINER}.env.0",
        _VISIBLE,
        "spec.containers[0].env[0].value",
    ),
    (
        "devices",
        f"{_CONTAINER}.env.0",
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "gpus", "key": "all"}}},
        "spec.containers[0].env[0].value",
    ),
    (
        "devices",
        f"{_CONTAINER}.env.0",
        {
            "name": "NVIDIA_VISIBLE_DEVICES",
            "value": "",
            "valueFrom": {"configMapKeyRef": {"name": "gpus", "key": "all"}},
        },
        "spec.containers[0].env[0].value",
    ),
    (
        "devices",
        f"{_CONTAINER}.volumeMounts.0.mountPath",
        "/var/run/nvidia-container-devices/all",
        "spec.containers[0].volumeMounts[0].mountPath",
    ),
    (
        "devices",
        f"{_CONTAINER}.volumeDevices",
        [{"name": "data", "devicePath": "/dev/xvda"}],
        "spec.containers[0].volumeDevices",
    ),
    ("devices", "metadata.annotations.cdi~k8s~io/x", "nvidia.com/gpu=all", 'metadata.annotations["cdi.k8s.io/x"]'),
    ("devices", "spec.runtimeClassName", "nvidia", "spec.runtimeClassName"),
    (
        "devices",
        f"{_CONTAINER}.envFrom",
        [{"prefix": "NVIDIA_", "secretRef": {"name": "m"}}],
        "spec.containers[0].envFrom[0].prefix",
    ),
    ("scheduling", "spec.nodeName", "gpu-1", "spec.nodeName"),
    ("images", f"{_CONTAINER}.image", "registry.example.com:5000/app", "spec.containers[0].image"),
    ("images", f"{_CONTAINER}.image", "app:latest", "spec.containers[0].image"),
    (
        "secrets-and-host-commands",
        f"{_CONTAINER}.env.0",
        {"name": "DB_PASSWORD", "value": "hunter2"},
        "spec.containers[0].env[0].value",
    ),
    (
        "raw-yaml",
        f"{_CONTAINER}.command",
        ["kubectl", "run", "x", "--image=x", "--privileged"],
        "spec.containers[0].command(text)",
    ),
    (
        "raw-yaml",
        f"{_CONTAINER}.args",
        ["-c", "kubectl apply -f https://example.com/all.yaml"],
        "spec.containers[0].args(text)",
    ),
]


def test_a_compliant_pod_passes() -> None:
    assert findings(POD, pod()) == ()


@pytest.mark.parametrize(("rule", "path", "value", "field"), CHANGES)
def test_one_change_makes_one_finding(rule: str, path: str, value: object, field: str) -> None:
    assert rules_and_paths(POD, changed(pod(), path, value)) == {(rule, field)}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{_CONTEXT}.privileged", None),
        (f"{_CONTAINER}.ports.0.hostPort", 0.0),
        (f"{_CONTAINER}.image", "registry.example.com:5000/app@sha256:" + "0" * 64),
        (f"{_CONTAINER}.env.0", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}),
        (f"{_CONTAINER}.env.0", {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "p"}}}),
        (f"{_CONTAINER}.env.0", {"name": "PASSWORD_FILE", "value": "/run/password"}),
        (f"{_CONTAINER}.env.0", {"name": "USE_TOKEN", "value": "true"}),
        (f"{_CONTAINER}.command", ["kubectl", "get", "pods"]),
        (f"{_CONTAINER}.volumeMounts.0.subPath", "..data"),
        ("spec.securityContext.seccompProfile", {"type": "Localhost", "localhostProfile": "p.json"}),
        ("spec.runtimeClassName", "kata"),
        ("spec.containers.0.image", "app:1.0"),
    ],
)
def test_what_is_allowed_passes(path: str, value: object) -> None:
    assert findings(POD, changed(pod(), path, value)) == ()


def test_a_gpu_that_was_requested_is_made_visible_by_whoever_gives_it_alone() -> None:
    requested = changed(pod(), f"{_CONTAINER}.resources.limits", {"nvidia.com/gpu": 1})
    assert findings(POD, changed(requested, "spec.runtimeClassName", "nvidia")) == ()
    assert rules_and_paths(POD, changed(requested, f"{_CONTAINER}.env.0", _VISIBLE)) == {
        ("devices", "spec.containers[0].env[0].value")
    }


def test_a_list_of_containers_that_kubernetes_does_not_read_requests_no_gpu() -> None:
    requested = [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    with_runtime = changed(pod(), "spec.runtimeClassName", "nvidia")
    assert rules_and_paths(POD, changed(with_runtime, "containers", requested)) == {
        ("devices", "spec.runtimeClassName")
    }


@pytest.mark.parametrize("place", ["", f"{_CONTEXT}."])
def test_a_list_of_containers_that_kubernetes_does_not_read_gives_a_pod_no_users_of_its_own(place: str) -> None:
    unmasked = changed(pod(), f"{_CONTEXT}.procMount", "Unmasked")
    pretended = changed(changed(unmasked, f"{place}hostUsers", False), f"{place}containers", [])
    assert rules_and_paths(POD, pretended) == {("host-access", "spec.containers[0].securityContext.procMount")}


def test_a_request_that_is_unknown_is_none() -> None:
    requested = changed(pod(), f"{_CONTAINER}.resources.limits", {"nvidia.com/gpu": UNKNOWN})
    assert rules_and_paths(POD, changed(requested, "spec.runtimeClassName", "nvidia")) == {
        ("devices", "spec.runtimeClassName")
    }


def test_an_unmasked_proc_is_allowed_in_a_user_namespace() -> None:
    unmasked = changed(pod(), f"{_CONTEXT}.procMount", "Unmasked")
    assert findings(POD, changed(unmasked, "spec.hostUsers", False)) == ()


@pytest.mark.parametrize("token", carriers())
@pytest.mark.parametrize("containers", ["containers", "initContainers", "ephemeralContainers"])
def test_no_kind_and_no_list_of_containers_hides_a_privileged_one(token: str, containers: str) -> None:
    shape = carriers()[token]
    assert findings(token, shape(pod())) == ()
    bad = shape(changed(pod(), f"spec.{containers}.0.securityContext", {"privileged": True}))
    [finding] = findings(token, bad)
    assert finding.rule == "privileged"
    assert finding.path.endswith(f"{containers}[0].securityContext.privileged")


def _in_config_map(text: str) -> Json:
    return {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"all.yaml": text}}


def _privileged() -> Json:
    return changed(pod(), f"{_CONTEXT}.privileged", True)


@pytest.mark.parametrize(
    ("token", "props"),
    [
        ("kubernetes:core/v1:ConfigMap", _in_config_map(yaml.safe_dump(_privileged()))),
        ("kubernetes:core/v1:ConfigMap", _in_config_map(json.dumps(_privileged()))),
        ("kubernetes:core/v1:ConfigMap", _in_config_map(yaml.safe_dump_all([pod(), _privileged()]))),
        ("kubernetes:core/v1:ConfigMap", _in_config_map(yaml.safe_dump(_privileged()) + "\n---\n{ not: [yaml")),
        ("kubernetes:core/v1:ConfigMap", _in_config_map(yaml.safe_dump({"kind": "List", "items": [_privileged()]}))),
        (
            "kubernetes:core/v1:Secret",
            {"kind": "Secret", "data": {"a": base64.b64encode(yaml.safe_dump(_privileged()).encode()).decode()}},
        ),
        ("kubernetes:yaml/v2:ConfigGroup", {"yaml": yaml.safe_dump(_privileged())}),
        ("kubernetes:yaml/v2:ConfigGroup", {"objs": [pod(), _privileged()]}),
        ("kubernetes:helm.sh/v3:Release", {"chart": "./chart", "values": {"podSpec": _privileged()["spec"]}}),
        ("command:local:Command", {"create": "kubectl apply -f -", "stdin": yaml.safe_dump(_privileged())}),
        ("my:module:Component", {"pod": _privileged()}),
        ("kubernetes:example.com/v1:Anything", {"spec": {"manifests": [{"object": _privileged()}]}}),
        (
            "kubernetes:kustomize/v2:Directory",
            {"patches": [{"op": "add", "path": "/spec/containers/0/securityContext/privileged", "value": True}]},
        ),
        (
            "kubernetes:core/v1:ConfigMap",
            _in_config_map('[{"op": "add", "path": "/spec/containers/0/securityContext/privileged", "value": true}]'),
        ),
    ],
)
def test_privilege_is_found_wherever_it_is_written(token: str, props: Json) -> None:
    assert {finding.rule for finding in findings(token, props)} == {"privileged"}


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("/spec/hostNetwork", True, "host-access"),
        ("/spec/containers/0/securityContext/capabilities/add/-", "SYS_ADMIN", "host-access"),
        ("/spec/volumes/-", {"name": "x", "hostPath": {"path": "/"}}, "host-paths"),
    ],
)
def test_a_json_patch_is_judged_by_what_it_sets(path: str, value: object, rule: str) -> None:
    patch = {"patches": [{"op": "add", "path": path, "value": value}]}
    assert {finding.rule for finding in findings("kubernetes:kustomize/v2:Directory", patch)} == {rule}


def test_another_providers_resource_without_a_kubernetes_shape_passes() -> None:
    props = {"privileged": True, "portMappings": [{"hostPort": 80}], "local": {"path": "/"}}
    assert findings("aws:ecs/taskDefinition:TaskDefinition", props) == ()


def test_a_definition_that_describes_security_fields_sets_none() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"securityContext": {"properties": {"privileged": {"type": "boolean"}}}},
    }
    definition = {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "x"},
        "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]},
    }
    assert findings("kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition", definition) == ()


UNKNOWNS: list[tuple[str, str]] = [
    ("privileged", f"{_CONTEXT}.privileged"),
    ("privileged", _CONTEXT),
    ("privileged", _CONTAINER),
    ("privileged", "spec"),
    ("host-paths", "spec.volumes"),
    ("host-paths", "spec.volumes.0"),
    ("host-access", "spec.hostNetwork"),
    ("host-access", f"{_CONTEXT}.capabilities.add"),
    ("host-access", f"{_CONTEXT}.capabilities.add.0"),
    ("devices", f"{_CONTAINER}.volumeDevices"),
    ("devices", "spec.runtimeClassName"),
    ("devices", f"{_CONTAINER}.envFrom"),
    ("scheduling", "spec.nodeName"),
    ("images", f"{_CONTAINER}.image"),
]


@pytest.mark.parametrize(("rule", "path"), UNKNOWNS)
def test_an_unknown_security_field_is_a_finding_that_says_how_to_make_it_known(rule: str, path: str) -> None:
    [finding] = findings(POD, changed(pod(), path, UNKNOWN))
    assert finding.rule == rule
    assert finding.found == "unknown until the update runs"
    assert "make it known" in finding.remedy


@pytest.mark.parametrize("path", ["metadata.name", f"{_CONTAINER}.env.0.value", "spec.replicas"])
def test_an_unknown_value_elsewhere_is_none(path: str) -> None:
    assert findings(POD, changed(pod(), path, UNKNOWN)) == ()


def test_an_unknown_value_hides_no_other_finding() -> None:
    unknown = changed(pod(), "spec.initContainers.0.securityContext.privileged", UNKNOWN)
    result = findings(POD, changed(unknown, f"{_CONTEXT}.privileged", True))
    values: dict[str, Any] = {finding.path: finding.found for finding in result}
    assert values == {
        "spec.initContainers[0].securityContext.privileged": "unknown until the update runs",
        "spec.containers[0].securityContext.privileged": "true",
    }


def test_a_message_names_resource_field_value_rule_reason_and_remedy() -> None:
    [finding] = findings(POD, _privileged())
    assert finding.message().splitlines() == [
        "Pod team/web: spec.containers[0].securityContext.privileged",
        "  found:  true",
        "  rule:   privileged",
        "  why:    a privileged container is root on its node, with every device",
        "  remedy: remove it; ask for GPUs through nvidia.com/gpu or a KAI fraction, which need no privilege",
    ]


def test_a_secret_is_in_no_message() -> None:
    bad = changed(pod(), f"{_CONTAINER}.env.0", {"name": "API_TOKEN", "value": "s3cr3t-value"})
    [finding] = findings(POD, bad)
    assert "s3cr3t" not in finding.message()
