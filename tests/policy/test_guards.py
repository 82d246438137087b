"""The guards of a stack stay: nothing weakens them, takes them away, or passes them by."""

import pytest

from policy.own_exceptions import OwnException
from policy.stack_platform import StackFacts
from tests.policy.objects import STRICT, TEGRA, UNKNOWN, Json, changed, findings, rules_and_paths
from tests.policy.test_cluster import COMMAND, COMPLIANT, GUARD, GUARD_BINDING, MUTATION, NAMESPACE, ROLE

ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"

_EXPRESSION = "spec.mutations.0.applyConfiguration.expression"
_PATCH = "spec.mutations.1.jsonPatch.expression"

CHANGES: list[tuple[str, str, str, object, str]] = [
    *[
        ("admission", MUTATION, _PATCH, expression, "spec.mutations[1].jsonPatch.expression")
        for expression in (
            "[JSONPatch{op: 'add', path: '/spec/x', value: {'privi' + 'leged': true}}]",
            "[JSONPatch{op: 'add', path: '/SPEC/HOSTPID'.lowerAscii(), value: true}]",
            "[JSONPatch{value: true, op: 'add', path: variables.p}]",
            "[JSONPatch{op: 'add', path: '/spec/containers/-', value: params.spec.container}]",
        )
    ],
    *[
        ("admission", MUTATION, _EXPRESSION, expression, "spec.mutations[0].applyConfiguration.expression")
        for expression in (
            "Object{spec: params.spec}",
            "Object{spec: Object.spec{containers: params.?spec.?containers.orValue([])}}",
            "Object{spec: Object.spec{containers: [params].map(p, p.spec.container)}}",
            "Object{spec: Object.spec{nodeSelector: {object.metadata.name: 'a'}}}",
        )
    ],
    *[
        ("admission", GUARD, "spec.validations.0.expression", expression, "spec.validations[0].expression")
        for expression in (
            "true",
            "1 == 1",
            "!false",
            "object == object",
            "!has(object.spec.hostPath) || true",
            "(object.spec.containers.size()) >= 0",
            "variables.host == variables.host",
            "size('object') == 6",
        )
    ],
    ("admission", GUARD, "spec.variables.0.expression", "false", "spec.validations[0].expression"),
    *[
        ("admission", GUARD, "spec.matchConditions", [{"name": "a", "expression": text}], "expression")
        for text in ("false", "object.metadata.name == 'never'")
    ],
    *[
        ("admission", GUARD, f"spec.matchConstraints.{key}", value, f"spec.matchConstraints.{key}")
        for key, value in (
            ("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": "nowhere"}}),
            ("objectSelector", {"matchLabels": {"app": "other"}}),
            ("excludeResourceRules", [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]),
            ("resourceRules", [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["jobs"]}]),
        )
    ],
    (
        "admission",
        GUARD,
        "spec.matchConstraints.resourceRules.0.resourceNames",
        ["never"],
        "spec.matchConstraints.resourceRules",
    ),
    ("admission", GUARD, "spec.matchConstraints.resourceRules.0.operations", ["UPDATE"], "resourceRules"),
    ("admission", GUARD, "spec.matchConstraints.resourceRules.0.scope", "Cluster", "resourceRules"),
    *[
        ("namespaces", NAMESPACE, "metadata.labels.kai-anywhere~io/pod-guard", value, "kai-anywhere.io/pod-guard")
        for value in ("off", "", "Enforce", None, UNKNOWN)
    ],
    ("admission", GUARD, "spec.paramKind", {"apiVersion": "v1", "kind": "ConfigMap"}, "spec.paramKind"),
    ("admission", GUARD_BINDING, "spec.policyName", "other", "spec.policyName"),
    (
        "admission",
        GUARD_BINDING,
        "spec.paramRef",
        {"name": "a", "parameterNotFoundAction": "Allow"},
        "spec.paramRef",
    ),
    *[
        (
            "admission",
            ROLE,
            "rules.0",
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": [f"validatingadmission{kind}"], **rule},
            "rules[0].verbs[1]",
        )
        for kind in ("policies", "policybindings")
        for rule in (
            {"verbs": ["get", "delete"]},
            {"verbs": ["list", "patch"], "resourceNames": ["kai-anywhere-pod-guard", "other"]},
        )
    ],
    *[
        ("raw-yaml", COMMAND, key, command, f"{key}(text)")
        for key in ("create", "delete")
        for command in (
            "docker run -d --gpus all app:1",
            """docker run "--gpus" all app:1""",
            "docker run '--runtime' nvidia app:1",
            "sudo docker run \\\n  --runtime=nvidia app:1",
            "podman run --device nvidia.com/gpu=all app:1",
            "nerdctl run -e NVIDIA_VISIBLE_DEVICES=all app:1",
            "docker run --env=NVIDIA_VISIBLE_DEVICES app:1",
            "kubectl delete validatingadmissionpolicybinding kai-anywhere-pod-guard",
            "kubectl delete validatingadmissionpolicies --all",
            "kubectl delete --all validatingadmissionpolicybindings",
            "kubectl delete $(kubectl get validatingadmissionpolicies -o name)",
            "kubectl get validatingadmissionpolicies -o name | xargs kubectl delete",
            "kubectl patch validatingadmissionpolicy/kai-anywhere-reservation-guard -p '{}'",
            "kubectl delete mutatingadmissionpolicy.v1.admissionregistration.k8s.io/kai-anywhere-reservation-overrides",
            "kubectl label namespace team kai-anywhere.io/pod-guard-",
            "kubectl label --overwrite namespace team kai-anywhere.io/pod-guard=off",
        )
    ],
]


@pytest.mark.parametrize(("rule", "token", "path", "value", "field"), CHANGES)
def test_one_change_makes_one_finding_on_every_platform(
    rule: str, token: str, path: str, value: object, field: str
) -> None:
    for stack in (STRICT, TEGRA):
        [(result_rule, where)] = rules_and_paths(token, changed(COMPLIANT[token], path, value), stack)
        assert result_rule == rule
        assert field in where


@pytest.mark.parametrize("name", ["kai-anywhere-reservation-guard", "kai-anywhere-pod-guard"])
def test_both_guards_of_a_stack_keep_their_teeth(name: str) -> None:
    guard = changed(COMPLIANT[GUARD], "metadata.name", name)
    if name.endswith("pod-guard"):
        labelled = {"matchLabels": {"kai-anywhere.io/pod-guard": "enforce"}}
        guard = changed(guard, "spec.matchConstraints.namespaceSelector", labelled)
    assert findings(GUARD, guard) == ()
    scope = "spec.matchConstraints.resourceRules.0.scope"
    for same in ("*", "Namespaced"):
        assert findings(GUARD, changed(guard, scope, same)) == ()
    assert rules_and_paths(GUARD, changed(guard, scope, "Cluster")) == {
        ("admission", "spec.matchConstraints.resourceRules")
    }
    ignored = changed(guard, "spec.failurePolicy", "Ignore")
    assert rules_and_paths(GUARD, ignored) == {("admission", "spec.failurePolicy")}
    binding = changed(changed(COMPLIANT[GUARD_BINDING], "metadata.name", name), "spec.policyName", name)
    audited = changed(binding, "spec.validationActions", ["Audit"])
    assert rules_and_paths(GUARD_BINDING, audited) == {("admission", "spec.validationActions")}


@pytest.mark.parametrize(
    "command",
    [
        "docker run app:1 && echo --gpus all",
        "docker run -e NVIDIA_VISIBLE_DEVICES=void app:1",
        "docker run --runtime=runc app:1; nvidia-ctk runtime configure --runtime=docker",
        "kubectl get validatingadmissionpolicy kai-anywhere-pod-guard",
        "kubectl wait --for=delete validatingadmissionpolicy/kai-anywhere-pod-guard",
        "kubectl delete pod web; kubectl get validatingadmissionpolicies --all-namespaces",
        "kubectl delete validatingadmissionpolicy somebody-elses",
        "kubectl label namespace team kai-anywhere.io/pod-guard=enforce",
    ],
)
def test_a_command_that_takes_nothing_away_passes(command: str) -> None:
    assert rules_and_paths(COMMAND, changed(COMPLIANT[COMMAND], "create", command)) == set()


@pytest.mark.parametrize(
    ("path", "value", "rules"),
    [
        ("/spec/hostNetwork", "true", {"admission", "host-access"}),
        ("/spec/volumes/-", "{'name': 'x', 'gitRepo': {'repository': 'x'}}", {"admission", "host-paths"}),
        ("/spec/volumes/0/hostPath/path", "'/'", {"admission", "host-paths"}),
        ("/metadata/annotations/cdi.k8s.io~1x", "'nvidia.com/gpu=all'", {"admission", "devices"}),
        ("/spec/nodeName", "'x'", {"admission"}),
        ("/metadata/labels/a", "'b'", set()),
        ("/spec/securityContext/supplementalGroups", "[44]", set()),
    ],
)
def test_a_patch_that_is_written_out_is_judged_by_its_words_and_by_what_it_makes(
    path: str, value: str, rules: set[str]
) -> None:
    expression = f"[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]"
    result = findings(MUTATION, changed(COMPLIANT[MUTATION], _PATCH, expression))
    assert {finding.rule for finding in result} == rules


@pytest.mark.parametrize(
    "word",
    [
        "NVIDIA_VISIBLE_DEVICES",
        "gitRepo",
        "flexVolume",
        "cdi.k8s.io/x",
        "nvidia.cdi.k8s.io/x",
        "nvidia.com/container.app.gpus.devices",
        "seLinuxOptions",
    ],
)
def test_an_expression_that_computes_something_has_no_word_of_a_check(word: str) -> None:
    for text, count in ((word, 1), ("harmless", 0)):
        expression = f"Object{{spec: Object.spec{{x: object.spec.x + ['{text}']}}}}"
        assert len(findings(MUTATION, changed(COMPLIANT[MUTATION], _EXPRESSION, expression))) == count


@pytest.mark.parametrize("token", [NAMESPACE, f"{NAMESPACE}Patch"])
def test_a_namespace_goes_unguarded_by_no_label_of_a_program(token: str) -> None:
    for value, is_found in (("enforce", False), ("off", True)):
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "kai-anywhere.io/pod-guard": value}
        namespace = changed(COMPLIANT[NAMESPACE], "metadata.labels", labels)
        assert bool(findings(token, namespace)) is is_found
    selector = {"matchLabels": {"kai-anywhere.io/pod-guard": "off"}}
    policy = changed(COMPLIANT[MUTATION], "spec.matchConstraints", {"namespaceSelector": selector})
    assert findings(MUTATION, policy) == ()


_VERSION = "pod-security.kubernetes.io/enforce-version"


@pytest.mark.parametrize("token", [NAMESPACE, f"{NAMESPACE}Patch"])
def test_no_namespace_keeps_to_a_level_as_it_was_before_it_had_all_its_checks(token: str) -> None:
    for version, is_found in (
        *((f"v1.{minor}", True) for minor in (0, 9, 18, 22)),
        *((f"v1.{minor}", False) for minor in (23, 30, 36, 100, 210)),
        *((value, False) for value in ("latest", "", None)),
        (UNKNOWN, True),
    ):
        labels = {"pod-security.kubernetes.io/enforce": "restricted", _VERSION: version}
        namespace = changed(COMPLIANT[NAMESPACE], "metadata.labels", labels)
        where = {("namespaces", f'metadata.labels["{_VERSION}"]')} if is_found else set()
        assert rules_and_paths(token, namespace) == where, version


def test_versions_of_levels_that_enforce_nothing_may_be_old() -> None:
    labels = {f"pod-security.kubernetes.io/{mode}-version": "v1.0" for mode in ("warn", "audit")}
    assert findings(NAMESPACE, changed(COMPLIANT[NAMESPACE], "metadata.labels", labels)) == ()
    selector = {"matchLabels": {_VERSION: "v1.0"}}
    policy = changed(COMPLIANT[MUTATION], "spec.matchConstraints", {"namespaceSelector": selector})
    assert findings(MUTATION, policy) == ()


@pytest.mark.parametrize("path", ["/metadata/labels/{}", "/metadata/labels"])
@pytest.mark.parametrize(
    ("label", "bad", "good"),
    [
        (_VERSION, "v1.0", "latest"),
        ("pod-security.kubernetes.io/enforce", "privileged", "baseline"),
        ("kai-anywhere.io/pod-guard", "off", "enforce"),
    ],
)
def test_no_patch_opens_a_namespace_by_one_label_or_by_all_of_them(path: str, label: str, bad: str, good: str) -> None:
    for value, rules in ((bad, {"namespaces"}), (good, set())):
        patch = {
            "op": "add",
            "path": path.format(label.replace("/", "~1")),
            "value": value if "{}" in path else {label: value},
        }
        spec = {"rules": [{"name": "a", "mutate": {"patchesJson6902": [patch]}}]}
        policy = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "a"}, "spec": spec}
        assert {finding.rule for finding in findings("kubernetes:kyverno.io/v1:ClusterPolicy", policy)} == rules


def test_a_command_that_takes_a_guard_away_is_shown_without_its_words() -> None:
    command = "kubectl delete validatingadmissionpolicies s3cr3t --all"
    [finding] = findings(COMMAND, changed(COMPLIANT[COMMAND], "create", command))
    assert "s3cr3t" not in finding.message()


def test_a_role_for_policies_of_its_own_passes() -> None:
    own = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingadmissionpolicies"],
        "resourceNames": ["somebody-elses"],
        "verbs": ["update", "delete"],
    }
    assert rules_and_paths(ROLE, changed(COMPLIANT[ROLE], "rules.0", own)) == set()


@pytest.mark.parametrize("token", [ROLE, f"{ROLE}Patch", "kubernetes:rbac.authorization.k8s.io/v1:Role"])
@pytest.mark.parametrize("verb", ["update", "patch", "Patch"])
@pytest.mark.parametrize(
    "more",
    [
        {"resources": ["namespaces"]},
        {"resources": ["pods", "Namespaces"]},
        {"resources": ["namespaces/status"]},
        {"resources": ["namespaces/finalize"]},
        {"resources": ["*/status"]},
        {"resources": ["namespaces"], "resourceNames": ["team"]},
        {"resources": ["namespaces"], "apiGroups": ["apps", ""]},
        {"resources": ["namespaces"], "apiGroups": None},
        {"resources": ["namespaces"], "apiGroups": []},
    ],
)
def test_no_role_may_label_a_namespace_anew(token: str, verb: str, more: Json) -> None:
    rule = {"apiGroups": [""], "verbs": ["get", verb]} | more
    for stack in (STRICT, TEGRA):
        [finding] = findings(token, changed(COMPLIANT[ROLE], "rules.0", rule) | {"kind": ""}, stack)
        assert (finding.rule, finding.path) == ("rbac", "rules[0].verbs[1]")
        assert finding.found == verb
        assert "Pod Security level of a namespace" in finding.why


@pytest.mark.parametrize(
    "rule",
    [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "delete"]},
        {"apiGroups": [""], "resources": ["pods", "pods/status", "configmaps"], "verbs": ["update", "patch"]},
        {"apiGroups": ["example.com"], "resources": ["namespaces", "*/status"], "verbs": ["update", "patch"]},
    ],
)
def test_a_role_that_labels_no_namespace_passes(rule: Json) -> None:
    assert findings(ROLE, changed(COMPLIANT[ROLE], "rules.0", rule)) == ()


def _binding(role: str, namespace: object, kind: str = "ClusterRole") -> Json:
    return {
        "metadata": {"name": "a", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "Group", "name": "team"}],
    }


_ACCEPTED = OwnException.model_validate(
    {
        "rule": "namespaces",
        "kind": "Namespace",
        "name": "monitoring",
        "value": "privileged",
        "who": "team",
        "why": "reads the node's load",
        "until": "2999-12-31",
    }
)


@pytest.mark.parametrize("role", ["admin", "edit"])
@pytest.mark.parametrize(
    ("namespace", "stack"),
    [
        ("kube-system", STRICT),
        ("kube-system", TEGRA),
        ("gpu-operator", STRICT),
        ("operators", StackFacts(operator_namespace="operators")),
        ("gvirtus-frontends", StackFacts(remote_gpu_frontends=True)),
        ("kai-resource-reservation", TEGRA),
        ("monitoring", StackFacts(accepted=(_ACCEPTED,))),
    ],
)
def test_nobody_edits_a_namespace_whose_pods_may_be_privileged(role: str, namespace: str, stack: StackFacts) -> None:
    for token in (ROLE_BINDING, f"{ROLE_BINDING}Patch"):
        [finding] = findings(token, _binding(role, namespace), stack)
        assert (finding.rule, finding.path, finding.found) == ("rbac", "roleRef.name", role)
        assert "bind it in another namespace" in finding.remedy


@pytest.mark.parametrize(
    ("role", "namespace", "kind"),
    [
        ("edit", "team", "ClusterRole"),
        ("admin", "team", "ClusterRole"),
        ("admin", "kube-system-tools", "ClusterRole"),
        ("edit", "monitoring", "ClusterRole"),
        ("edit", "operators", "ClusterRole"),
        ("edit", "gvirtus-frontends", "ClusterRole"),
        ("edit", "kai-resource-reservation", "ClusterRole"),
        ("view", "kube-system", "ClusterRole"),
        ("extension-apiserver-authentication-reader", "kube-system", "Role"),
        ("edit", "kube-system", "Role"),
        ("edit", UNKNOWN, "ClusterRole"),
        ("edit", None, "ClusterRole"),
        ("edit", ["kube-system"], "ClusterRole"),
    ],
)
def test_a_binding_that_starts_no_privileged_pod_passes(role: str, namespace: object, kind: str) -> None:
    assert findings(ROLE_BINDING, _binding(role, namespace, kind)) == ()


def test_an_editor_of_the_systems_namespace_can_be_accepted_like_everything_else() -> None:
    binding = _binding("edit", "kube-system")
    accepted = _ACCEPTED.model_copy(
        update={"rule": "rbac", "kind": "RoleBinding", "namespace": "kube-system", "name": "a", "value": "edit"}
    )
    assert findings(ROLE_BINDING, binding, StackFacts(accepted=(accepted,))) == ()
    other = accepted.model_copy(update={"value": "admin"})
    assert len(findings(ROLE_BINDING, binding, StackFacts(accepted=(other,)))) == 1


def test_a_policy_may_take_texts_and_answers_from_its_parameter() -> None:
    parameter = {"apiVersion": "v1", "kind": "ConfigMap"}
    texts = "Object{spec: Object.spec{nodeSelector: {'zone': params.data['zone']}}}"
    compliant = COMPLIANT[MUTATION]
    assert findings(MUTATION, changed(changed(compliant, "spec.paramKind", parameter), _EXPRESSION, texts)) == ()
    answers = (
        "params.spec.on && object.metadata.name in params.spec.names ? Object{} : Object{metadata: object.metadata}"
    )
    assert findings(MUTATION, changed(compliant, _EXPRESSION, answers)) == ()
