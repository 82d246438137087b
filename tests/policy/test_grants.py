"""On Tegra exactly the platform's grants pass, on reservation objects alone; on x86 none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from config.reservation import Privilege
from manifests import reservation
from manifests.admission import SETTINGS
from policy.stack_platform import StackFacts, stack_facts
from testbed.stacks import STACKS, jetson, mixed, parse, rungs, rungs_webhook, unprivileged, webhook
from testbed.stacks import changed as changed_stack
from tests.policy.objects import STRICT, TEGRA, Json, changed, findings, reservation_pod, without
from tests.support.pods.reservation_cases import NEAR, OVER_THE_ENTRYPOINT
from tests.unit.components.programs import preview

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
POD = "kubernetes:core/v1:Pod"
MUTATION = "kubernetes:admissionregistration.k8s.io/v1:MutatingAdmissionPolicy"
BINDING = "kubernetes:admissionregistration.k8s.io/v1:MutatingAdmissionPolicyBinding"
NAMESPACE = "kubernetes:core/v1:Namespace"


def _facts(stack: Json) -> StackFacts:
    return stack_facts(json.dumps(stack), {})


def _overrides(stack: Json | None = None) -> Json:
    return reservation.overrides_policy(parse(stack or jetson()), Privilege.PRIVILEGED)


def _binding() -> Json:
    return reservation.overrides_binding(parse(jetson()), Privilege.PRIVILEGED)


@pytest.mark.parametrize("name", STACKS)
def test_every_stack_of_this_repository_passes_without_a_finding(name: str) -> None:
    stack = STACKS[name]()
    registrations = preview(stack).registrations
    assert len(registrations) > 5
    for registered in registrations:
        assert findings(registered.type, dict(registered.inputs), _facts(stack)) == (), registered.key


def test_the_jetson_stack_fails_as_a_stack_without_a_platform() -> None:
    result = [finding for item in preview(jetson()).registrations for finding in findings(item.type, dict(item.inputs))]
    assert {finding.rule for finding in result} == {"privileged", "host-paths", "devices", "namespaces", "scheduling"}


def test_the_overrides_pass_on_tegra_alone() -> None:
    assert findings(MUTATION, _overrides(), TEGRA) == ()
    assert {finding.rule for finding in findings(MUTATION, _overrides(), STRICT)} == {
        "privileged",
        "host-paths",
        "devices",
    }


def _server_settings(stack: Json, path: str = "version", value: object = 1) -> Json:
    """The admission server's ConfigMap, perhaps with something else in its document."""
    [made] = [item for item in preview(stack).registrations if item.key == f"ConfigMap:admission-{SETTINGS}"]
    document = changed(json.loads(made.inputs["data"]["settings.json"]), path, value)
    return {**made.inputs, "data": {"settings.json": json.dumps(document)}}


def _of_rung(rung: str, stack: Json | None = None) -> Json:
    return reservation.overrides_policy(parse(stack or rungs()), Privilege(rung))


@pytest.mark.parametrize("rung", ["privileged", "devices", "none"])
def test_the_overrides_of_a_rung_pass_for_its_own_nodes_alone(rung: str) -> None:
    policy, facts = _of_rung(rung), _facts(rungs())
    assert findings(MUTATION, policy, facts) == ()
    for path, value in (
        ("spec.matchConditions.1.expression", 'params.metadata.name in ["jetson-1", "jetson-2", "jetson-3"]'),
        ("spec.matchConditions.1.expression", "true"),
        ("metadata.name", "kai-anywhere-reservation-overrides-other"),
    ):
        assert findings(MUTATION, changed(policy, path, value), facts)


def test_the_overrides_of_a_rung_add_nothing_of_a_higher_one() -> None:
    facts = _facts(rungs())
    expression = "spec.mutations.0.applyConfiguration.expression"
    high, low, lowest = (
        _of_rung(rung)["spec"]["mutations"][0]["applyConfiguration"]["expression"]
        for rung in ("privileged", "devices", "none")
    )
    assert {finding.rule for finding in findings(MUTATION, changed(_of_rung("devices"), expression, high), facts)} >= {
        "privileged"
    }
    assert {finding.rule for finding in findings(MUTATION, changed(_of_rung("none"), expression, low), facts)} >= {
        "host-paths"
    }
    assert findings(MUTATION, changed(_of_rung("privileged"), expression, lowest), facts) == ()


def test_a_stack_on_the_rung_none_grants_no_privilege_to_anything() -> None:
    facts = _facts(unprivileged())
    assert not facts.grants
    assert findings(MUTATION, _of_rung("none", unprivileged()), facts) == ()
    assert {finding.rule for finding in findings(MUTATION, _overrides(), facts)} >= {"privileged", "host-paths"}
    assert {finding.rule for finding in findings(POD, reservation_pod(), facts)} >= {"privileged", "host-paths"}
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    namespace = {"kind": "Namespace", "metadata": {"name": "kai-resource-reservation", "labels": level}}
    assert [finding.rule for finding in findings(NAMESPACE, namespace, facts)] == ["namespaces"]
    assert {finding.rule for finding in findings(CONFIG_MAP, _server_settings(webhook()), facts)} >= {"privileged"}


def _pod_of(node: str, rung: str) -> Json:
    pod = changed(reservation_pod(), "spec.nodeName", node)
    granted: Any = replace(TEGRA, rung=rung, rungs={}).fragment(node)["spec"]
    pod["spec"]["volumes"] = granted.get("volumes", [])
    container = {**pod["spec"]["containers"][0], **granted["containers"][0]}
    container["securityContext"] = granted["containers"][0].get("securityContext", {})
    pod["spec"]["containers"] = [container]
    return pod


@pytest.mark.parametrize(
    ("node", "rung", "passes"),
    [
        ("jetson-3", "privileged", True),
        ("jetson-3", "devices", True),
        ("jetson-2", "privileged", False),
        ("jetson-2", "devices", True),
        ("jetson-1", "privileged", False),
        ("jetson-1", "devices", False),
    ],
)
def test_a_reservation_pod_passes_as_far_as_its_nodes_rung_goes(node: str, rung: str, passes: bool) -> None:
    assert (findings(POD, _pod_of(node, rung), _facts(rungs())) == ()) == passes


def test_the_admission_servers_fragments_pass_for_the_stacks_own_rungs_alone() -> None:
    settings = _server_settings(rungs_webhook())
    assert findings(CONFIG_MAP, settings, _facts(rungs_webhook())) == ()
    higher = changed_stack(rungs_webhook(), "reservation.privilege", "devices")
    assert findings(CONFIG_MAP, settings, _facts(higher))
    for path, value in (
        (f"{_MUTATION}.byNode.jetson-1", "privileged"),
        (f"{_MUTATION}.fragments.none.securityContext", {"privileged": True}),
        (f"{_MUTATION}.fragments.none.podSecurityContext.seLinuxOptions", {"type": "spc_t"}),
    ):
        assert findings(CONFIG_MAP, _server_settings(rungs_webhook(), path, value), _facts(rungs_webhook())), path


@pytest.mark.parametrize("privilege", ["root", 3, None, ["none"]])
def test_a_rung_that_is_none_of_them_grants_nothing(privilege: object) -> None:
    facts = _facts(changed_stack(jetson(), "reservation.privilege", privilege))
    assert not facts.grants
    assert "reservation.privilege is not one of" in (facts.problem or "")


_MUTATION = "mutations.reservation"


def test_the_admission_servers_fragment_passes_on_tegra_alone() -> None:
    settings = _server_settings(webhook())
    assert findings(CONFIG_MAP, settings, TEGRA) == ()
    assert {finding.rule for finding in findings(CONFIG_MAP, settings, STRICT)} == {"privileged", "host-paths"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{_MUTATION}.pods.namespace", "default"),
        (f"{_MUTATION}.pods.namespace", None),
        (f"{_MUTATION}.pods.labels", {}),
        (f"{_MUTATION}.pods.nodeLabels", {}),
        (f"{_MUTATION}.fragments..container", "another"),
        (f"{_MUTATION}.fragments..container", None),
        (f"{_MUTATION}.fragments..volumes", [{"name": "root", "hostPath": {"path": "/"}}]),
        (f"{_MUTATION}.fragments..securityContext", {"privileged": True, "capabilities": {"add": ["ALL"]}}),
        (f"{_MUTATION}.fragments.more", {"securityContext": {"privileged": True}}),
        (f"{_MUTATION}.choice", {"annotation": "a", "default": ""}),
        ("mutations.other", {"fragments": {"": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}}}),
    ],
)
def test_another_mutation_of_the_admission_server_does_not_pass(path: str, value: object) -> None:
    assert findings(CONFIG_MAP, _server_settings(webhook(), path, value), TEGRA)


def test_the_admission_servers_words_for_a_refusal_are_its_own() -> None:
    path = f"{_MUTATION}.fragments..containerMissing"
    assert findings(CONFIG_MAP, _server_settings(webhook(), path, "another text"), TEGRA) == ()


_SPEC = "spec.matchConstraints"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "another"),
        ("spec.failurePolicy", "Ignore"),
        (f"{_SPEC}.namespaceSelector", {}),
        (f"{_SPEC}.namespaceSelector.matchLabels", {"kubernetes.io/metadata.name": "default"}),
        (f"{_SPEC}.objectSelector", {}),
        (f"{_SPEC}.resourceRules.0.resources", ["pods", "deployments"]),
        (f"{_SPEC}.resourceRules.0.operations", ["*"]),
        ("spec.matchConditions", []),
        ("spec.paramKind", {"apiVersion": "v1", "kind": "ConfigMap"}),
        ("kind", "ConfigMap"),
    ],
)
def test_overrides_with_a_wider_scope_get_no_grant(path: str, value: object) -> None:
    assert {finding.rule for finding in findings(MUTATION, changed(_overrides(), path, value), TEGRA)} >= {"privileged"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('hostPath{path: "/dev"', 'hostPath{path: "/"'),
        ('name: "resource-reservation"', 'name: "other"'),
        ("privileged: true", "privileged: true, procMount: 'Unmasked'"),
        ("runtimeClassName:", "hostNetwork: true, runtimeClassName:"),
        ("readOnly: true", "readOnly: false"),
    ],
)
def test_overrides_that_add_more_than_the_grants_fail(old: str, new: str) -> None:
    policy = _overrides()
    expression = policy["spec"]["mutations"][0]["applyConfiguration"]["expression"]
    assert old in expression
    bad = changed(policy, "spec.mutations.0.applyConfiguration.expression", expression.replace(old, new))
    assert {finding.rule for finding in findings(MUTATION, bad, TEGRA)} >= {"privileged"}


def test_overrides_for_every_node_fail() -> None:
    binding = _binding()
    assert findings(BINDING, binding, TEGRA) == ()
    [finding] = findings(BINDING, without(binding, "spec.paramRef"), TEGRA)
    assert finding.rule == "admission"


def test_a_second_binding_of_the_overrides_reaches_no_other_nodes() -> None:
    second = changed(_binding(), "metadata.name", "second")
    assert findings(BINDING, second, TEGRA) == ()
    selector = {"matchLabels": {"kubernetes.io/arch": "amd64"}}
    for wider in (changed(second, "spec.paramRef.selector", selector), without(second, "spec.paramRef")):
        assert [finding.rule for finding in findings(BINDING, wider, TEGRA)] == ["admission"]
    another = changed(changed(second, "spec.policyName", "another"), "spec.paramRef.selector", selector)
    assert findings(BINDING, another, TEGRA) == ()


_IMAGE_OF_THE_CONTAINER = (
    "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'resource-reservation', image: 'app:1'}]}}"
)


def _rewriting(expression: str, **constraints: object) -> Json:
    jsonpatch = expression.startswith("[")
    mutation = {"jsonPatch" if jsonpatch else "applyConfiguration": {"expression": expression}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    return {
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "another"},
        "spec": {
            "matchConstraints": {"resourceRules": rules, **constraints},
            "mutations": [{"patchType": "JSONPatch" if jsonpatch else "ApplyConfiguration", **mutation}],
        },
    }


def _named(operator: str, *names: str) -> Json:
    return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": operator, "values": [*names]}]}


@pytest.mark.parametrize(
    "policy",
    [
        _rewriting(_IMAGE_OF_THE_CONTAINER),
        _rewriting("[JSONPatch{op: 'replace', path: '/spec/containers/0/image', value: 'app:1'}]"),
        _rewriting(_IMAGE_OF_THE_CONTAINER, namespaceSelector=_named("In", "kai-resource-reservation")),
        _rewriting(_IMAGE_OF_THE_CONTAINER, namespaceSelector=_named("NotIn", "kube-system")),
        _rewriting(_IMAGE_OF_THE_CONTAINER, objectSelector={"matchLabels": {"app": "kai-resource-reservation"}}),
    ],
)
def test_another_policy_that_writes_reservation_pods_fails_where_they_are_privileged(policy: Json) -> None:
    [finding] = findings(MUTATION, policy, TEGRA)
    assert finding.rule == "admission"
    assert "NotIn [kai-resource-reservation]" in finding.remedy
    assert findings(MUTATION, policy, STRICT) == ()


@pytest.mark.parametrize(
    "policy",
    [
        _rewriting("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"),
        _rewriting(_IMAGE_OF_THE_CONTAINER, namespaceSelector=_named("NotIn", "kai-resource-reservation", "other")),
        _rewriting(_IMAGE_OF_THE_CONTAINER, namespaceSelector=_named("In", "team-a")),
        _rewriting(_IMAGE_OF_THE_CONTAINER, namespaceSelector={"matchLabels": {"team": "a"}}),
        _rewriting(_IMAGE_OF_THE_CONTAINER, objectSelector={"matchLabels": {"inject": "true"}}),
        changed(_rewriting(_IMAGE_OF_THE_CONTAINER), "spec.matchConstraints.resourceRules.0.resources", ["services"]),
    ],
)
def test_another_policy_that_leaves_reservation_pods_alone_passes(policy: Json) -> None:
    assert findings(MUTATION, policy, TEGRA) == ()


def test_the_reservation_namespace_is_privileged_on_tegra_alone() -> None:
    namespace = {
        "kind": "Namespace",
        "metadata": {
            "name": "kai-resource-reservation",
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    }
    assert findings(NAMESPACE, namespace, TEGRA) == ()
    assert [finding.rule for finding in findings(NAMESPACE, namespace, STRICT)] == ["namespaces"]
    other = changed(namespace, "metadata.name", "kai-resource-reservation-2")
    assert [finding.rule for finding in findings(NAMESPACE, other, TEGRA)] == ["namespaces"]
    unlabelled = changed(namespace, "metadata.labels", {})
    assert [finding.rule for finding in findings(NAMESPACE, unlabelled, TEGRA)] == ["namespaces"]


def test_the_reservation_pod_passes_on_tegra_alone() -> None:
    assert findings(POD, reservation_pod(), TEGRA) == ()
    assert {finding.rule for finding in findings(POD, reservation_pod(), STRICT)} == {
        "privileged",
        "host-paths",
        "scheduling",
    }


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *NEAR,
        ("metadata.namespace", "default"),
        ("spec.resourceClaims", [{"name": "gpu", "resourceClaimName": "gpu"}]),
        ("spec.volumes.1.hostPath.path", "/"),
        ("spec.volumes.1", {"name": "dev-nvidia", "configMap": {"name": "program"}}),
        ("spec.volumes.1", {"name": "dev-nvidia", "projected": {"sources": []}, "hostPath": {"path": "/"}}),
        ("spec.volumes.0", {"name": "nvidia-libs", "projected": {"sources": [{"configMap": {"name": "program"}}]}}),
        ("spec.containers.0.volumeMounts.0.readOnly", False),
        ("spec.containers.0.volumeMounts.0", {"name": "nvidia-libs", "mountPath": "/usr/lib/aarch64-linux-gnu/nvidia"}),
        ("spec.containers.0.volumeMounts.1.subPath", "sda"),
        ("spec.containers.0.volumeMounts.1.mountPath", "/workspace"),
        ("spec.containers.0.volumeDevices", [{"name": "disk", "devicePath": "/dev/sda"}]),
    ],
)
def test_a_reservation_pod_with_anything_else_fails_on_tegra_too(path: str, value: object) -> None:
    assert findings(POD, changed(_stored_pod(), path, value), TEGRA)


def test_a_program_mounted_over_kais_own_fails() -> None:
    pod = _stored_pod()
    for path, value in OVER_THE_ENTRYPOINT:
        spec, key = (
            (pod["spec"], "volumes") if path == "spec.volumes" else (pod["spec"]["containers"][0], "volumeMounts")
        )
        spec[key] += value
    assert {finding.rule for finding in findings(POD, pod, TEGRA)} >= {"privileged", "host-paths"}


def _stored_pod() -> Json:
    """The pod as the API server stores it: KAI's environment, the overrides, its service account."""
    pod = reservation_pod()
    [container] = pod["spec"]["containers"]
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}} for name, field in fields.items()]
    container["env"] = [*env, {"name": "GODEBUG", "value": "fips140=only,tlsmlkem=0"}, *container["env"]]
    token = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    pod["spec"]["volumes"].append({"name": "kube-api-access-abcde"} | token)
    mount = {"name": "kube-api-access-abcde", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    container["volumeMounts"].append(mount | {"readOnly": True})
    return pod


def test_the_pod_as_the_api_server_stores_it_passes() -> None:
    assert findings(POD, _stored_pod(), TEGRA) == ()


@pytest.mark.parametrize("name", ["resourcereservation", "resource-reservation"])
@pytest.mark.parametrize("version", [":v0.18.6", ":v0.18.6-fips", "@sha256:" + "0" * 64, ":v0.18.6@sha256:" + "0" * 64])
def test_kais_program_is_known_from_the_stacks_registry_alone(name: str, version: str) -> None:
    def passes(registry: str, facts: StackFacts) -> bool:
        pod = changed(reservation_pod(), "spec.containers.0.image", f"{registry}/{name}{version}")
        return findings(POD, pod, facts) == ()

    mirror = "registry.example.com:5000/kai"
    mirrored = _facts(changed_stack(jetson(), "kai.images.registry", mirror))
    assert passes("ghcr.io/kai-scheduler/kai-scheduler", TEGRA)
    assert passes(mirror, mirrored)
    assert not passes(mirror, TEGRA)
    assert not passes("ghcr.io/kai-scheduler/kai-scheduler", mirrored)


def test_a_deployment_in_the_reservation_namespace_gets_no_grant() -> None:
    pod = reservation_pod()
    props = {"metadata": pod["metadata"], "spec": {"template": {"metadata": pod["metadata"], "spec": pod["spec"]}}}
    result = findings("kubernetes:apps/v1:Deployment", props, TEGRA)
    assert {finding.rule for finding in result} >= {"privileged"}


def test_without_settings_nothing_is_granted() -> None:
    assert not stack_facts(None, {}).grants


def test_the_packs_own_configuration_counts_where_the_stacks_does_not_arrive() -> None:
    facts = stack_facts(None, {"platform": {"kind": "tegra", "tegra_nodes": {"jetson-7": {}}}})
    assert facts.tegra_nodes == {"jetson-7"}


def test_hosts_alone_grant_nothing_and_have_no_operator() -> None:
    facts = _facts(changed_stack(jetson(), "installs", "hosts"))
    assert not facts.grants
    assert facts.labelled_nodes == frozenset()
    assert not facts.operator_installed
    assert _facts(changed_stack(jetson(), "installs", "everything")) == _facts(jetson())


def test_overrides_that_are_off_grant_nothing() -> None:
    facts = _facts(changed_stack(jetson(), "reservation.overrides", "never"))
    assert not facts.grants
    assert facts.labelled_nodes == {"jetson-1"}


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "1", '{"platform": 3}', '{"platform": {"kind": "arm"}}', "null"])
def test_settings_that_can_not_be_read_grant_nothing(text: str) -> None:
    assert not stack_facts(text, {}).grants


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib/../../etc", "usr/lib/x"])
def test_settings_can_not_grant_any_folder(path: str) -> None:
    facts = _facts(changed_stack(jetson(), "platform.driver_library_path", path))
    assert facts.libraries == ("/usr/lib/aarch64-linux-gnu/nvidia",)
    assert facts.problem is not None


def test_paths_of_another_jetpack_are_granted() -> None:
    stack = changed_stack(jetson(), "platform.driver_library_path", "/usr/lib/aarch64-linux-gnu/tegra")
    assert findings(MUTATION, _overrides(stack), _facts(stack)) == ()
    assert findings(MUTATION, _overrides(stack), TEGRA) != ()


_R39 = ["/usr/lib/aarch64-linux-gnu/nvidia", "/opt/nvidia/l4t-gpu-libs/openrm"]


def _own_folders(folders: list[str]) -> Json:
    return changed_stack(mixed(), "platform.tegra_nodes.jetson-2.driver_library_paths", folders)


def test_a_nodes_own_folders_are_granted_in_the_policy_and_to_pods_of_that_node_alone() -> None:
    facts = _facts(_own_folders(_R39))
    assert findings(MUTATION, _overrides(_own_folders(_R39)), facts) == ()
    assert findings(MUTATION, _overrides(_own_folders(_R39)), _facts(mixed())) != ()
    pod = reservation_pod()
    given: Any = facts.fragment("jetson-2")["spec"]
    container = pod["spec"]["containers"][0] | given["containers"][0]
    pod["spec"] |= given | {"nodeName": "jetson-2", "containers": [container]}
    assert findings(POD, pod, facts) == ()
    pod["spec"]["nodeName"] = "jetson-1"
    assert findings(POD, pod, facts) != ()


def test_a_choice_with_anything_beyond_the_grants_is_a_finding() -> None:
    policy = _overrides(_own_folders(_R39))
    configuration = policy["spec"]["mutations"][0]["applyConfiguration"]
    configuration["expression"] = configuration["expression"].replace(f'"{_R39[1]}"', '"/etc"')
    assert findings(MUTATION, policy, _facts(_own_folders(_R39))) != ()


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr/lib/../../etc", "/opt"])
def test_a_nodes_settings_can_not_grant_any_folder(folder: str) -> None:
    facts = _facts(_own_folders([_R39[0], folder]))
    assert facts.node_libraries == {}
    assert facts.problem == (
        "driver_library_paths of jetson-2 has what is no library folder; the platform's is granted there"
    )
