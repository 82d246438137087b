"""Every rule about what steers the cluster or the hosts: a compliant object passes, one change makes one finding."""

import copy
import json
from typing import Any

import pytest

from policy.reading import Hole
from tests.policy.objects import STRICT, TEGRA, UNKNOWN, Json, changed, findings, pod, rules_and_paths

NAMESPACE = "kubernetes:core/v1:Namespace"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"
BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
RELEASE = "kubernetes:helm.sh/v3:Release"
COMMAND = "command:remote:Command"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
KAI_CONFIG = "kubernetes:kai.scheduler/v1:Config"
CLUSTER_POLICY = "kubernetes:nvidia.com/v1:ClusterPolicy"
MUTATION = "kubernetes:admissionregistration.k8s.io/v1:MutatingAdmissionPolicy"
WEBHOOK = "kubernetes:admissionregistration.k8s.io/v1:MutatingWebhookConfiguration"
GUARD = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
GUARD_BINDING = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding"
NODE = "kubernetes:core/v1:NodePatch"
VOLUME = "kubernetes:core/v1:PersistentVolume"
GROUP = "kubernetes:yaml/v2:ConfigGroup"
CLAIM = "kubernetes:resource.k8s.io/v1:ResourceClaim"

ENFORCE = "pod-security~kubernetes~io/enforce"

COMPLIANT: dict[str, Json] = {
    NAMESPACE: {
        "kind": "Namespace",
        "metadata": {"name": "team", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    },
    ROLE: {
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ],
    },
    BINDING: {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "app", "namespace": "team"}],
    },
    RELEASE: {
        "name": "app",
        "chart": "oci://registry.example.com/charts/app",
        "version": "1.2.3",
        "values": {"image": {"tag": "1.2.3"}, "securityContext": {"privileged": False}, "psa": {"enabled": False}},
    },
    COMMAND: {"create": "systemctl restart app", "environment": {"MODE": "fast"}, "stdin": "password=x"},
    CONFIG_MAP: {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"mode": "fast", "a.yaml": "a: 1\n"}},
    KAI_CONFIG: {
        "kind": "Config",
        "metadata": {"name": "kai-config"},
        "spec": {
            "binder": {
                "resourceReservation": {
                    "reservationContainerSecurityContext": {"privileged": False, "runAsUser": 10000},
                    "reservationPodSecurityContext": {"runAsNonRoot": True},
                }
            }
        },
    },
    CLUSTER_POLICY: {"kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"psa": {"enabled": False}}},
    MUTATION: {
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "labels"},
        "spec": {
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'},
                },
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": '[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("x/y"), '
                        "value: object.metadata.name}]"
                    },
                },
            ]
        },
    },
    WEBHOOK: {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "kai-anywhere-admission"},
        "webhooks": [
            {
                "name": "a.kai-anywhere.io",
                "namespaceSelector": {"matchLabels": {"a": "b"}},
                "objectSelector": {"matchLabels": {"a": "b"}},
                "timeoutSeconds": 5.0,
                "failurePolicy": "Fail",
            }
        ],
    },
    GUARD: {
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "kai-anywhere-reservation-guard"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kai-resource-reservation"}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods", "pods/exec"]}
                ],
            },
            "variables": [{"name": "host", "expression": "has(object.spec.hostPath)"}],
            "validations": [{"expression": "!variables.host"}],
        },
    },
    GUARD_BINDING: {
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "kai-anywhere-reservation-guard"},
        "spec": {"policyName": "kai-anywhere-reservation-guard", "validationActions": ["Deny"]},
    },
    NODE: {"kind": "Node", "metadata": {"name": "x86-1", "labels": {"nvidia.com/gpu.count": "1"}}},
    GROUP: {"yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n"},
    VOLUME: {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"csi": {"driver": "d.example.com"}}},
    CLAIM: {
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    },
}

_EXPRESSION = "spec.mutations.0.applyConfiguration.expression"
_APPLIED = "spec.mutations[0].applyConfiguration.expression"
_PATCH = "spec.mutations.1.jsonPatch.expression"
_RESERVATION = "spec.binder.resourceReservation"

CHANGES: list[tuple[str, str, str, object, str]] = [
    ("namespaces", NAMESPACE, f"metadata.labels.{ENFORCE}", "privileged", "pod-security.kubernetes.io/enforce"),
    ("namespaces", NAMESPACE, f"metadata.labels.{ENFORCE}", "Privileged", "pod-security.kubernetes.io/enforce"),
    ("namespaces", NAMESPACE, f"metadata.labels.{ENFORCE}", "", "pod-security.kubernetes.io/enforce"),
    (
        "namespaces",
        NAMESPACE,
        "metadata.labels.resource~kubernetes~io/admin-access",
        "true",
        "resource.kubernetes.io/admin-access",
    ),
    *[
        ("rbac", ROLE, "rules.0.verbs.1", verb, "rules[0].verbs[1]")
        for verb in (
            *("escalate", "bind", "impersonate", "*", "ESCALATE"),
            *("impersonate:user-info", "impersonate-on:user-info:create", "Impersonate:serviceaccount"),
        )
    ],
    *[("rbac", ROLE, "rules.0.resources.0", resource, "rules[0].resources[0]") for resource in ("*/proxy", "*/token")],
    ("rbac", ROLE, "rules.0.resources.0", "*", "rules[0].resources[0]"),
    ("rbac", ROLE, "rules.0.resources.0", "nodes/proxy", "rules[0].resources[0]"),
    ("rbac", ROLE, "rules.0.apiGroups.0", "*", "rules[0].apiGroups[0]"),
    ("rbac", ROLE, "rules.1.nonResourceURLs.0", "*", "rules[1].nonResourceURLs[0]"),
    (
        "rbac",
        ROLE,
        "aggregationRule",
        {"clusterRoleSelectors": [{}]},
        "aggregationRule.clusterRoleSelectors[0]",
    ),
    ("rbac", BINDING, "roleRef.name", "cluster-admin", "roleRef.name"),
    ("rbac", BINDING, "subjects.0.name", "system:anonymous", "subjects[0].name"),
    *[("helm", RELEASE, "version", version, "version") for version in ("", ">=1.0.0", "1.x", "latest", None)],
    ("helm", RELEASE, "postrender", "/usr/bin/rewrite", "postrender"),
    ("helm", RELEASE, "disableOpenapiValidation", True, "disableOpenapiValidation"),
    ("privileged", RELEASE, "values.securityContext.privileged", True, "values.securityContext.privileged"),
    ("privileged", RELEASE, "values.a.b.privileged", "true", "values.a.b.privileged"),
    ("host-paths", RELEASE, "values.extraVolumes", [{"hostPath": {"path": "/"}}], "values.extraVolumes[0].hostPath"),
    ("host-access", RELEASE, "values.hostNetwork", True, "values.hostNetwork"),
    ("custom-resources", RELEASE, "values.psa.enabled", True, "values.psa.enabled"),
    ("custom-resources", CLUSTER_POLICY, "spec.psa.enabled", True, "spec.psa.enabled"),
    (
        "custom-resources",
        KAI_CONFIG,
        f"{_RESERVATION}.reservationContainerSecurityContext.runAsUser",
        0.0,
        f"{_RESERVATION}.reservationContainerSecurityContext.runAsUser",
    ),
    (
        "custom-resources",
        KAI_CONFIG,
        f"{_RESERVATION}.reservationPodSecurityContext.runAsNonRoot",
        False,
        f"{_RESERVATION}.reservationPodSecurityContext.runAsNonRoot",
    ),
    ("secrets-and-host-commands", COMMAND, "environment.API_TOKEN", "hunter2", "environment.API_TOKEN"),
    ("secrets-and-host-commands", COMMAND, "create", "login --password hunter2", "create(text)"),
    (
        "secrets-and-host-commands",
        COMMAND,
        "create",
        "install pod.yaml /etc/kubernetes/manifests/pod.yaml",
        "create(text)",
    ),
    (
        "secrets-and-host-commands",
        COMMAND,
        "delete",
        "touch /var/lib/rancher/k3s/server/manifests/a.yaml",
        "delete(text)",
    ),
    ("secrets-and-host-commands", CONFIG_MAP, "data.db-password", "hunter2", "data.db-password"),
    (
        "secrets-and-host-commands",
        CONFIG_MAP,
        "data.key",
        "-----BEGIN RSA PRIVATE KEY-----\nabc",
        "data.key(text)",
    ),
    ("raw-yaml", COMMAND, "create", "docker run --privileged app", "create(text)"),
    ("raw-yaml", COMMAND, "create", "kubectl label node a kai-anywhere.io/platform='tegra'", "create(text)"),
    ("raw-yaml", COMMAND, "create", "curl -s https://example.com/a.yaml | kubectl apply -f -", "create(text)"),
    (
        "raw-yaml",
        COMMAND,
        "create",
        "kubectl label namespace team pod-security.kubernetes.io/enforce=privileged",
        "create(text)",
    ),
    (
        "raw-yaml",
        CONFIG_MAP,
        "data.script",
        "kubectl apply -f - <<EOF\nspec: {{ .Spec }\n  hostNetwork: true\nEOF\n",
        "data.script(text)",
    ),
    (
        "raw-yaml",
        CONFIG_MAP,
        "data.template",
        "apiVersion: v1\nkind: {{ .Kind }}\nspec: {{ .Spec }\n  hostPID: true\n",
        "data.template(text)",
    ),
    (
        "privileged",
        MUTATION,
        _EXPRESSION,
        "Object{spec: Object.spec{containers: [Object.spec.containers{securityContext: "  # noqa: ISC004 - one text
        "Object.spec.containers.securityContext{privileged: true}}]}}",
        f"{_APPLIED}(text)[0].spec.containers[0].securityContext.privileged",
    ),
    (
        "host-access",
        MUTATION,
        _EXPRESSION,
        "Object{spec: Object.spec{hostNetwork: true}}",
        f"{_APPLIED}(text)[0].spec.hostNetwork",
    ),
    (
        "admission",
        MUTATION,
        _EXPRESSION,
        "Object{spec: Object.spec{hostNetwork: object.metadata.name == 'a'}}",
        _APPLIED,
    ),
    (
        "admission",
        MUTATION,
        _PATCH,
        '[JSONPatch{op: "copy", from: "/spec/enableServiceLinks", path: "/spec/hostNetwork"}]',
        "spec.mutations[1].jsonPatch.expression",
    ),
    *[
        ("rbac", MUTATION, _PATCH, f"[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]", field)
        for path, value, field in (
            ("/rules/-", "{'apiGroups': ['*'], 'resources': ['pods'], 'verbs': ['get']}", "apiGroups[0]"),
            ("/subjects/-", "Object.subjects{kind: 'Group', name: 'system:authenticated'}", "subjects[0].name"),
            ("/roleRef/name", "'cluster-admin'", "roleRef.name"),
        )
    ],
    (
        "admission",
        MUTATION,
        _PATCH,
        '[JSONPatch{op: "add", path: "/spec/host" + "Network", value: true}]',
        "spec.mutations[1].jsonPatch.expression",
    ),
    ("admission", GUARD, "spec.failurePolicy", "Ignore", "spec.failurePolicy"),
    ("admission", GUARD_BINDING, "spec.validationActions", ["Audit"], "spec.validationActions"),
    (
        "admission",
        GUARD_BINDING,
        "spec.matchResources",
        {"namespaceSelector": {"matchLabels": {"a": "b"}}},
        "spec.matchResources",
    ),
    *[
        ("admission", WEBHOOK, f"webhooks.0.{key}", value, f"webhooks[0].{key}")
        for key, value in (
            ("namespaceSelector", {}),
            ("objectSelector", None),
            ("timeoutSeconds", 30.0),
            ("timeoutSeconds", None),
            ("failurePolicy", "Ignore"),
        )
    ],
    (
        "scheduling",
        NODE,
        "metadata.labels.kai-anywhere~io/platform",
        "tegra",
        'metadata.labels["kai-anywhere.io/platform"]',
    ),
    ("host-paths", VOLUME, "spec.hostPath", {"path": "/srv"}, "spec.hostPath"),
    ("host-paths", VOLUME, "spec.local", {"path": "/srv"}, "spec.local"),
    ("devices", CLAIM, "spec.devices.requests.0.exactly.adminAccess", True, "adminAccess"),
]


@pytest.mark.parametrize("token", COMPLIANT)
def test_a_compliant_object_passes(token: str) -> None:
    for stack in (STRICT, TEGRA):
        assert findings(token, COMPLIANT[token], stack) == ()


@pytest.mark.parametrize(("rule", "token", "path", "value", "field"), CHANGES)
def test_one_change_makes_one_finding(rule: str, token: str, path: str, value: object, field: str) -> None:
    [(broken_rule, where)] = rules_and_paths(token, changed(COMPLIANT[token], path, value))
    assert broken_rule == rule
    assert field in where


@pytest.mark.parametrize(("rule", "token", "path", "value", "field"), CHANGES)
def test_tegra_grants_none_of_it(rule: str, token: str, path: str, value: object, field: str) -> None:
    props = changed(COMPLIANT[token], path, value)
    assert {(rule, path) for rule, path in rules_and_paths(token, props, TEGRA) if field in path} == {
        (broken_rule, where) for broken_rule, where in rules_and_paths(token, props) if broken_rule == rule
    }


UNKNOWNS: list[tuple[str, str, str]] = [
    ("namespaces", NAMESPACE, f"metadata.labels.{ENFORCE}"),
    ("namespaces", NAMESPACE, "metadata.labels"),
    ("rbac", ROLE, "rules.0.verbs"),
    ("rbac", ROLE, "rules.0.verbs.0"),
    ("rbac", ROLE, "rules"),
    ("rbac", BINDING, "roleRef.name"),
    ("helm", RELEASE, "version"),
    ("helm", RELEASE, "values"),
    ("custom-resources", CLUSTER_POLICY, "spec.psa.enabled"),
    ("custom-resources", KAI_CONFIG, f"{_RESERVATION}.reservationContainerSecurityContext"),
    ("admission", MUTATION, _EXPRESSION),
    ("admission", WEBHOOK, "webhooks.0.failurePolicy"),
    ("raw-yaml", GROUP, "yaml"),
    ("secrets-and-host-commands", COMMAND, "create"),
    ("host-paths", VOLUME, "spec.local"),
    ("scheduling", NODE, "metadata.labels.kai-anywhere~io/platform"),
    ("devices", CLAIM, "spec.devices.requests.0.exactly.adminAccess"),
]


@pytest.mark.parametrize(("rule", "token", "path"), UNKNOWNS)
def test_an_unknown_security_field_is_a_finding(rule: str, token: str, path: str) -> None:
    result = findings(token, changed(COMPLIANT[token], path, UNKNOWN))
    assert rule in {finding.rule for finding in result}
    assert {finding.found for finding in result} == {"unknown until the update runs"}


def test_an_unknown_manifest_text_is_a_finding() -> None:
    [finding] = findings("kubernetes:yaml/v2:ConfigGroup", {"yaml": UNKNOWN})
    assert (finding.rule, finding.path) == ("raw-yaml", "yaml")


def test_a_role_hides_in_no_list() -> None:
    bad = changed(COMPLIANT[ROLE], "rules.0.verbs", ["escalate"])
    props = {"items": [COMPLIANT[ROLE], bad]}
    assert rules_and_paths(f"{ROLE}List", props) == {("rbac", "items[1].rules[0].verbs[0]")}


def test_a_key_that_kubernetes_drops_excuses_no_role() -> None:
    role = changed(COMPLIANT[ROLE], "rules.0.verbs.1", "*")
    assert rules_and_paths(ROLE, changed(role, "rules.0.level", "Metadata")) == {("rbac", "rules[0].verbs[1]")}


def test_a_key_that_kubernetes_drops_excuses_no_role_that_a_policy_of_kyverno_writes() -> None:
    rules = [{"level": "Metadata", "apiGroups": ["*"], "resources": ["pods"], "verbs": ["get"]}]
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": "a", "namespace": "team"},
        "spec": {"rules": [{"name": "a", "generate": {"kind": "Role", "name": "b", "data": {"rules": rules}}}]},
    }
    assert rules_and_paths("kubernetes:kyverno.io/v1:Policy", policy) == {
        ("rbac", "spec.rules[0].generate.data.rules[0].apiGroups[0]")
    }


def test_what_api_servers_log_is_no_role() -> None:
    audit = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [{"level": "Metadata", "verbs": ["*"], "resources": ["*"], "apiGroups": ["*"]}],
    }
    assert not findings(CONFIG_MAP, changed(COMPLIANT[CONFIG_MAP], "data", {"audit.yaml": json.dumps(audit)}))


@pytest.mark.parametrize("resource", ["*/proxy", "*/token"])
def test_a_wildcard_in_a_products_own_group_is_no_kubelet_and_no_account(resource: str) -> None:
    role = changed(COMPLIANT[ROLE], "rules.0.apiGroups.0", "example.com")
    assert not findings(ROLE, changed(role, "rules.0.resources.0", resource))


def test_a_namespace_hides_behind_no_other_token() -> None:
    bad = changed(COMPLIANT[NAMESPACE], "metadata.labels", {"pod-security.kubernetes.io/enforce": "privileged"})
    for token in ("kubernetes:core/v1:NamespacePatch", "kubernetes:example.com/v1:Other", "my:own:Thing"):
        assert {rule for rule, _ in rules_and_paths(token, bad | {"apiVersion": "v1"})} >= {"namespaces"}, token


def test_a_selector_on_the_label_lowers_nothing() -> None:
    selector = {"matchLabels": {"pod-security.kubernetes.io/enforce": "privileged"}}
    assert findings(WEBHOOK, changed(COMPLIANT[WEBHOOK], "webhooks.0.namespaceSelector", selector)) == ()


def test_somebody_elses_webhook_is_not_held_to_our_bounds() -> None:
    props = copy.deepcopy(COMPLIANT[WEBHOOK])
    props["metadata"]["name"] = "cert-manager"
    del props["webhooks"][0]["timeoutSeconds"]
    assert findings(WEBHOOK, props) == ()


@pytest.mark.parametrize("chart", ["./charts/app", "/srv/charts/app.tgz", "oci://r.example.com/app@sha256:" + "0" * 64])
def test_a_chart_is_pinned_by_its_folder_or_digest_too(chart: str) -> None:
    props = {key: value for key, value in COMPLIANT[RELEASE].items() if key != "version"} | {"chart": chart}
    assert findings(RELEASE, props) == ()


def test_text_that_repeats_itself_without_end_is_a_finding_at_once() -> None:
    lines = ['apiVersion: &a0 ["x", "x"]'] + [f"k{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    result: tuple[Any, ...] = findings(CONFIG_MAP, changed(COMPLIANT[CONFIG_MAP], "data.a", "\n".join(lines)))
    assert {finding.path for finding in result} == {"data.a(text)"}
    assert "aliases" in result[0].found


def test_mappings_that_merge_each_other_ever_again_are_refused_before_they_fill_the_memory() -> None:
    levels = "".join(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 7))
    text = f"apiVersion: v1\na0: &a0 {{k: 1}}\n{levels}"
    result = findings(CONFIG_MAP, changed(COMPLIANT[CONFIG_MAP], "data.a", text))
    assert {finding.found for finding in result} == {Hole.TOO_LARGE.value}


def test_what_a_manifest_merges_is_judged() -> None:
    text = "apiVersion: v1\na: &a {hostPID: true}\nspec: {<<: *a, hostIPC: false}\n"
    result = rules_and_paths(CONFIG_MAP, changed(COMPLIANT[CONFIG_MAP], "data.a", text))
    assert ("host-access", "data.a(text).spec.hostPID") in result


def test_a_secret_value_is_in_no_message() -> None:
    cases = [
        (COMMAND, "environment.API_TOKEN", "s3cr3t-value"),
        (COMMAND, "create", "login --password s3cr3t-value"),
        (CONFIG_MAP, "data.url", "postgres://user:s3cr3t-value@db/x"),
        (RELEASE, "postrender", "s3cr3t-value"),
    ]
    for token, path, value in cases:
        result = findings(token, changed(COMPLIANT[token], path, value))
        assert result, path
        for finding in result:
            assert "s3cr3t" not in finding.message(), path


def test_a_credential_in_an_image_reference_is_not_shown() -> None:
    props = changed(pod(), "spec.containers.0.image", "https://user:s3cr3t@registry.example.com/app")
    result = findings("kubernetes:core/v1:Pod", props)
    assert {finding.rule for finding in result} == {"images", "secrets-and-host-commands"}
    assert not [finding for finding in result if "s3cr3t" in finding.message()]


def test_a_policy_of_somebody_else_may_ignore_failures() -> None:
    ignored = changed(changed(COMPLIANT[GUARD], "metadata.name", "other"), "spec.failurePolicy", "Ignore")
    assert rules_and_paths(GUARD, ignored) == set()
