"""The guard of all pods: which namespaces and kinds it judges, by which checks, and what it grants on Tegra.

That its expressions do what they say, and give the policy pack's verdict, is proven on a real API server, in
tests/engine.
"""

import json
import re

import pytest

from agents.admission import pods as admission_server
from manifests import pod_guard
from manifests.admission_objects import deny_binding
from pod_checks import table
from pod_checks.language import Check
from policy.rules import POD_RULES
from testbed.stacks import STACKS, Json, changed, jetson, mixed, never, parse, spark, x86


def _policy(stack: Json) -> Json:
    return pod_guard.guard_policy(parse(stack))


def _variables(stack: Json) -> dict[str, str]:
    return {variable["name"]: variable["expression"] for variable in _policy(stack)["spec"]["variables"]}


def _cluster(stack: Json, **more: object) -> Json:
    return changed(stack, "pod_guard", {"scope": "cluster", **more})


@pytest.mark.parametrize("name", STACKS)
def test_every_stack_is_guarded_and_the_guard_denies(name: str) -> None:
    policy, binding = _policy(STACKS[name]()), deny_binding(pod_guard.POD_GUARD)
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_by_default_only_labelled_namespaces_are_guarded() -> None:
    assert _policy(x86())["spec"]["matchConstraints"]["namespaceSelector"] == {
        "matchLabels": {"kai-anywhere.io/pod-guard": "enforce"}
    }
    assert pod_guard.exempt_namespaces(parse(x86())) == []


def test_a_guarded_cluster_leaves_out_what_is_privileged_by_design_and_nothing_else() -> None:
    selector = _policy(_cluster(jetson()))["spec"]["matchConstraints"]["namespaceSelector"]
    assert selector == {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gpu-operator", "kube-system"]}
        ]
    }


def test_exemptions_and_the_operators_own_namespace_are_left_out_too() -> None:
    stack = changed(_cluster(x86(), exempt_namespaces=["longhorn-system"]), "gpu_operator.namespace", "nvidia")
    assert pod_guard.exempt_namespaces(parse(stack)) == ["kube-system", "longhorn-system", "nvidia"]


def test_an_operator_that_somebody_else_runs_is_left_out_as_ours() -> None:
    stack = changed(_cluster(jetson()), "gpu_operator.install", False)
    assert "gpu-operator" in pod_guard.exempt_namespaces(parse(stack))


def test_every_kind_that_carries_a_pod_is_judged_when_it_comes_and_when_it_changes() -> None:
    rules = _policy(x86())["spec"]["matchConstraints"]["resourceRules"]
    assert {(group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]} == {
        ("", "pods"),
        ("", "pods/ephemeralcontainers"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        ("", "pods/status"),
        ("", "pods/binding"),
        ("", "bindings"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
    }
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules)


def test_every_check_of_the_table_is_rendered_and_counted_for_the_new_and_the_old_object() -> None:
    variables = _variables(x86())
    for check in table.CHECKS:
        assert f"variables.{check.name}[0]" in variables["found"]
        assert f"variables.{check.name}[1]" in variables["before"]
        for field in check.fields:
            assert field.split("[]")[0].split(".")[-1] in variables[check.name], field


@pytest.mark.parametrize("check", table.CHECKS, ids=lambda check: check.name)
def test_a_message_has_the_checks_rule_reason_and_remedy(check: Check) -> None:
    text = json.dumps(f" ({check.rule}: {check.why}; {check.remedy})")
    assert text in _variables(x86())[check.name]


def test_a_check_belongs_to_a_rule_of_the_pack_about_pods() -> None:
    assert {check.rule for check in table.CHECKS} == {rule.name for rule in POD_RULES}
    names = [check.name for check in table.CHECKS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z_]+", name) for name in names), "each names a variable of the policy"


def test_the_guard_looks_into_lists_as_long_as_the_admission_server_does() -> None:
    assert (pod_guard.MAX_CONTAINERS, pod_guard.MAX_ENTRIES) == (
        admission_server.MAX_CONTAINERS,
        admission_server.MAX_ENTRIES,
    )


def test_every_list_that_a_check_goes_through_has_a_bound() -> None:
    variables = _variables(x86())
    for name, expression in variables.items():
        for walked in re.findall(r"(\S+)\.orValue\((?:\[\]|\{\})\)\.(?:map|filter|exists)\(", expression):
            pytest.fail(f"{name} walks {walked} however long it is")
    for field in ("containers", "volumes", "securityContext.sysctls"):
        assert f".{field} has more than" in variables["long_in_pods"]
    for field in ("env", "envFrom", "ports", "volumeMounts", "volumeDevices", "securityContext.capabilities.add"):
        assert f".{field} has more than 1000 entries" in variables["long_in_containers"]


def test_annotations_of_nv_fractions_lift_the_runtime_class_under_that_mode_alone() -> None:
    spelling = ".gpu-memory.request"
    assert spelling not in json.dumps(_policy(x86()))
    variables = _variables(changed(x86(), "kai.gpu_sharing_mode", "nv_fractions"))
    assert {name for name, expression in variables.items() if spelling in expression} == {"runtime_classes"}


def test_a_variable_uses_only_variables_before_it() -> None:
    seen: set[str] = set()
    for name, expression in _variables(jetson()).items():
        assert set(re.findall(r"variables\.([a-z_]+)", expression)) <= seen, name
        seen.add(name)


def test_the_grants_are_for_the_stacks_tegra_nodes_and_folders() -> None:
    stack = changed(mixed(), "platform.driver_library_path", "/usr/lib/aarch64-linux-gnu/tegra")
    variables = _variables(stack)
    assert 'in ["jetson-1", "jetson-2"]' in variables["specs"]
    assert "spark-1" not in json.dumps(_policy(stack))
    assert "/usr/lib/aarch64-linux-gnu/tegra" in variables["specs"]
    assert "/usr/lib/aarch64-linux-gnu/nvidia" not in variables["specs"]


@pytest.mark.parametrize("stack", [x86(), spark(), never()])
def test_a_stack_without_overrides_grants_no_node_and_no_folder(stack: Json) -> None:
    variables = _variables(stack)
    assert variables["specs"].endswith("dyn(false)])")
    assert variables["host_paths"].startswith("variables.volumes.map(bs, bs.map(b, (b[3]) ? ")
    assert "jetson" not in json.dumps(_policy(stack))


def test_kais_binder_is_known_by_the_stacks_namespace_and_account() -> None:
    stack = changed(x86(), "kai.namespace", "kai-elsewhere")
    assert '"system:serviceaccount:kai-elsewhere:binder"' in _variables(stack)["node_was_chosen"]
    renamed = _variables(changed(stack, "kai.binder_service_account", "product-binder"))
    assert '"system:serviceaccount:kai-elsewhere:product-binder"' in renamed["node_was_chosen"]
    assert ":binder" not in renamed["node_was_chosen"]
