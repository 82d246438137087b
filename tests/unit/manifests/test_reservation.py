"""What reservation pods get on Tegra nodes, what they never get elsewhere, and the guard around both.

That the policy's expressions do what they say is proven on a real API server, in tests/engine.
"""

import json

import pytest

from config.reservation import Privilege
from manifests import every_object, pod_guard, reservation, reservation_guard
from manifests.reservation import tegra_fragment
from testbed.stacks import STACKS, changed, jetson, mixed, never, parse, rungs, spark, unprivileged, x86
from tests.support.values import documents_of

_X86 = ["x86", "spark", "time-slicing", "k8s-snap", "air-gapped"]


def test_the_fragment_is_the_platform_table() -> None:
    libraries = "/usr/lib/aarch64-linux-gnu/nvidia"
    assert tegra_fragment(parse(jetson()), Privilege.PRIVILEGED).model_dump(
        exclude={"container_missing"}, exclude_defaults=True
    ) == {
        "container": "resource-reservation",
        "runtimeClassName": "nvidia",
        "env": [
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
            {"name": "LD_LIBRARY_PATH", "value": libraries},
        ],
        "volumes": [
            {"name": "nvidia-libs", "hostPath": {"path": libraries, "type": "Directory"}},
            {"name": "dev-nvidia", "hostPath": {"path": "/dev", "type": "Directory"}},
        ],
        "volumeMounts": [
            {"name": "nvidia-libs", "mountPath": libraries, "readOnly": True},
            {"name": "dev-nvidia", "mountPath": "/dev"},
        ],
        "securityContext": {
            "privileged": True,
            "allowPrivilegeEscalation": True,
            "runAsNonRoot": False,
            "runAsUser": 0,
        },
    }


def _given(stack: dict[str, object], rung: Privilege) -> dict[str, object]:
    return tegra_fragment(parse(stack), rung).model_dump(exclude={"container_missing"}, exclude_defaults=True)


def test_the_rung_none_adds_variables_and_groups_and_no_power_over_the_node() -> None:
    libraries = "/usr/lib/aarch64-linux-gnu/nvidia"
    assert _given(unprivileged(), Privilege.NONE) == {
        "container": "resource-reservation",
        "runtimeClassName": "nvidia",
        "env": [
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
            {"name": "LD_LIBRARY_PATH", "value": libraries},
        ],
        "podSecurityContext": {"supplementalGroups": [44, 104]},
    }


def test_the_rung_devices_adds_the_libraries_read_only_to_the_rung_none() -> None:
    libraries = "/usr/lib/aarch64-linux-gnu/nvidia"
    assert _given(rungs(), Privilege.DEVICES) == _given(rungs(), Privilege.NONE) | {
        "volumes": [{"name": "nvidia-libs", "hostPath": {"path": libraries, "type": "Directory"}}],
        "volumeMounts": [{"name": "nvidia-libs", "mountPath": libraries, "readOnly": True}],
    }


def test_a_privileged_pod_is_root_and_gets_no_groups() -> None:
    assert _given(rungs(), Privilege.PRIVILEGED) == _given(jetson(), Privilege.PRIVILEGED)


def test_each_rung_has_a_policy_that_names_its_nodes() -> None:
    objects = every_object.objects(parse(rungs()))
    names = {"": "jetson-1", "-devices": "jetson-2", "-privileged": "jetson-3"}
    for suffix, node in names.items():
        policy, binding = objects[f"reservation-policy{suffix}"], objects[f"reservation-binding{suffix}"]
        assert policy["metadata"]["name"] == f"kai-anywhere-reservation-overrides{suffix}"
        assert [match_condition["expression"] for match_condition in policy["spec"]["matchConditions"]][1:] == [
            f'params.metadata.name in ["{node}"]'
        ]
        assert binding["spec"]["policyName"] == binding["metadata"]["name"] == policy["metadata"]["name"]
    assert {name for name in objects if name.startswith(("reservation-policy", "reservation-binding"))} == {
        f"reservation-{kind}{suffix}" for kind in ("policy", "binding") for suffix in names
    }


@pytest.mark.parametrize("rung", ["devices", "none"])
def test_only_a_policy_of_the_rung_privileged_speaks_of_privilege(rung: str) -> None:
    text = json.dumps(every_object.objects(parse(changed(unprivileged(), "reservation.privilege", rung))))
    policies = json.loads(text)
    policy = json.dumps(policies["reservation-policy"])
    for word in ("privileged", "allowPrivilegeEscalation", "runAsUser", "/dev"):
        assert word not in policy
    assert ("hostPath" in policy) == (rung == "devices")
    assert "supplementalGroups" in policy


def test_the_folders_of_another_jetpack_reach_mounts_and_environment() -> None:
    stack = changed(jetson(), "platform.driver_library_path", "/usr/lib/aarch64-linux-gnu/tegra")
    fragment = tegra_fragment(parse(changed(stack, "platform.device_path", "/host/dev")), Privilege.PRIVILEGED)
    folders = ["/usr/lib/aarch64-linux-gnu/tegra", "/host/dev"]
    assert fragment.env[-1] == {"name": "LD_LIBRARY_PATH", "value": folders[0]}
    assert [volume["hostPath"]["path"] for volume in fragment.volumes] == folders
    assert [mount["mountPath"] for mount in fragment.volume_mounts] == folders


_R39 = ["/usr/lib/aarch64-linux-gnu/nvidia", "/opt/nvidia/l4t-gpu-libs/openrm"]


def _with_own_folders() -> dict[str, object]:
    return changed(mixed(), "platform.tegra_nodes.jetson-2.driver_library_paths", _R39)


def test_several_folders_are_several_mounts_and_one_search_path() -> None:
    fragment = tegra_fragment(parse(jetson()), Privilege.PRIVILEGED, _R39)
    assert fragment.env[-1] == {"name": "LD_LIBRARY_PATH", "value": ":".join(_R39)}
    assert [(volume["name"], volume["hostPath"]["path"]) for volume in fragment.volumes] == [
        ("nvidia-libs", _R39[0]),
        ("nvidia-libs-2", _R39[1]),
        ("dev-nvidia", "/dev"),
    ]
    assert [(mount["name"], mount["mountPath"], mount.get("readOnly")) for mount in fragment.volume_mounts] == [
        ("nvidia-libs", _R39[0], True),
        ("nvidia-libs-2", _R39[1], True),
        ("dev-nvidia", "/dev", None),
    ]


def test_both_carriers_give_a_node_its_own_folders_and_all_others_the_platforms() -> None:
    settings = parse(_with_own_folders())
    [merged] = every_object.objects(settings)["reservation-policy"]["spec"]["mutations"]
    own, others = merged["applyConfiguration"]["expression"].split(" : ")
    assert own.startswith('object.spec.nodeName in ["jetson-2"] ? Object{')
    assert _R39[1] in own
    assert _R39[1] not in others
    mutation = reservation.mutation(settings)
    given = {node: mutation.fragments[name].env[-1]["value"] for node, name in mutation.by_node.items()}
    assert given == {"jetson-1": _R39[0], "jetson-2": ":".join(_R39)}


def test_nodes_with_the_same_folders_are_written_once() -> None:
    stack = changed(_with_own_folders(), "platform.tegra_nodes.jetson-1.driver_library_paths", _R39)
    [mutation] = every_object.objects(parse(stack))["reservation-policy"]["spec"]["mutations"]
    expression = mutation["applyConfiguration"]["expression"]
    assert expression.startswith("Object{")
    assert expression.count(":".join(_R39)) == 1
    assert " ? " not in expression


def test_the_policy_reaches_reservation_pods_at_creation_and_nothing_else() -> None:
    spec = every_object.objects(parse(jetson()))["reservation-policy"]["spec"]
    assert spec["matchConstraints"] == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kai-resource-reservation"}},
        "objectSelector": {"matchLabels": {"app": "kai-resource-reservation"}},
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    assert spec["failurePolicy"] == "Fail", "a pod without libraries would only crash-loop"
    assert spec["paramKind"] == {"apiVersion": "v1", "kind": "Node"}
    [condition] = spec["matchConditions"]
    assert "object.spec.nodeName == params.metadata.name" in condition["expression"]


def test_the_policy_overrides_every_security_field_that_kai_sets() -> None:
    [mutation] = every_object.objects(parse(jetson()))["reservation-policy"]["spec"]["mutations"]
    expression = mutation["applyConfiguration"]["expression"]
    for field in ("privileged: true", "allowPrivilegeEscalation: true", "runAsNonRoot: false", "runAsUser: 0"):
        assert field in expression
    assert expression.count("readOnly: true") == 1, "the libraries are read-only, the devices are not"


def test_the_policy_is_bound_to_nodes_of_our_platform_label_alone() -> None:
    spec = every_object.objects(parse(mixed()))["reservation-binding"]["spec"]
    assert spec["policyName"] == every_object.objects(parse(mixed()))["reservation-policy"]["metadata"]["name"]
    assert spec["paramRef"] == {
        "selector": {"matchLabels": {"kai-anywhere.io/platform": "tegra"}},
        "parameterNotFoundAction": "Allow",
    }


@pytest.mark.parametrize("name", [*_X86, "never"])
def test_no_stack_without_overrides_mutates_a_pod(name: str) -> None:
    documents = documents_of(parse(STACKS[name]()))
    assert not {"reservation-policy", "reservation-binding"} & documents.keys()
    assert not any(document.get("kind", "").startswith("Mutating") for document in documents.values())


@pytest.mark.parametrize("name", [*_X86, "never"])
def test_nothing_in_a_stack_without_overrides_makes_a_pod_privileged(name: str) -> None:
    documents = documents_of(parse(STACKS[name]()))
    operator = documents.pop("gpu-operator-namespace")
    guard = documents.pop("reservation-guard")
    # It forbids what it speaks of, too; that it does is proven on a real API server.
    del documents["pod-guard-policy"]
    assert operator["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged", "NVIDIA's operands"
    assert "no pod here may, since this stack has no overrides" in json.dumps(guard), (
        "the guard speaks of it to forbid it"
    )
    assert "privileged" not in json.dumps(documents)
    assert "hostPath" not in json.dumps(documents)


@pytest.mark.parametrize("name", [*_X86, "never"])
def test_a_tegra_feature_rule_belongs_to_tegra_stacks(name: str) -> None:
    kinds = [document.get("kind") for document in documents_of(parse(STACKS[name]())).values()]
    assert kinds.count("NodeFeatureRule") == (1 if name == "never" else 0)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("jetson", "privileged"),
        ("mixed", "privileged"),
        ("rungs", "privileged"),
        ("unprivileged", "baseline"),
        ("never", "baseline"),
        ("x86", "baseline"),
        ("spark", "baseline"),
    ],
)
def test_the_reservation_namespace_is_privileged_only_where_pods_are(name: str, level: str) -> None:
    labels = reservation.reservation_namespace(parse(STACKS[name]()))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == level


@pytest.mark.parametrize("name", STACKS)
def test_every_stack_is_guarded_and_the_guard_denies(name: str) -> None:
    objects = every_object.objects(parse(STACKS[name]()))
    assert objects["reservation-guard"]["spec"]["failurePolicy"] == "Fail"
    assert objects["reservation-guard-binding"]["spec"] == {
        "policyName": objects["reservation-guard"]["metadata"]["name"],
        "validationActions": ["Deny"],
    }


def test_the_guard_looks_at_updates_ephemeral_containers_and_ways_into_pods_too() -> None:
    rules = every_object.objects(parse(x86()))["reservation-guard"]["spec"]["matchConstraints"]["resourceRules"]
    assert {tuple(rule["operations"]): rule["resources"] for rule in rules} == {
        ("CREATE", "UPDATE"): ["pods", "pods/ephemeralcontainers"],
        ("CONNECT",): ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy"],
    }


def test_the_guard_names_the_tegra_nodes_their_folders_and_the_stacks_registry() -> None:
    text = json.dumps(reservation_guard.guard_policy(parse(mixed())))
    assert "on these Tegra nodes: jetson-1, jetson-2" in text
    assert "/usr/lib/aarch64-linux-gnu/nvidia" in text
    assert "spark-1" not in text
    assert "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation" in text
    mirrored = changed(mixed(), "kai.images.registry", "registry.example.com:5000/kai")
    text = json.dumps(reservation_guard.guard_policy(parse(mirrored)))
    assert "registry.example.com:5000/kai/resourcereservation" in text
    assert "ghcr.io" not in text


def test_the_guard_asks_pod_securitys_baseline_and_nothing_about_gpus_or_images() -> None:
    assert {check.rule for check in pod_guard.BASELINE} == {"privileged", "host-paths", "host-access"}
    names = [variable["name"] for variable in reservation_guard.guard_policy(parse(jetson()))["spec"]["variables"]]
    assert len(names) == len(set(names)), "one would hide the other"
    assert {"host_paths", "host_ports", "profiles", "selinux_types"} <= set(names)
    assert set(names).isdisjoint({"images", "node_names", "unrequested_gpus"})


@pytest.mark.parametrize("stack", [x86(), spark(), never()])
def test_the_guard_of_a_stack_without_overrides_grants_nothing(stack: dict[str, object]) -> None:
    policy = reservation_guard.guard_policy(parse(stack))
    variables = {variable["name"]: variable["expression"] for variable in policy["spec"]["variables"]}
    assert variables["specs"].endswith("dyn(false)])")
    text = json.dumps(policy)
    assert "nvidia-libs" not in text
    assert "jetson" not in text


def test_the_guard_knows_kais_binder_by_the_stacks_namespace_and_account() -> None:
    stack = changed(jetson(), "kai.namespace", "kai-elsewhere")
    assert "system:serviceaccount:kai-elsewhere:binder" in json.dumps(reservation_guard.guard_policy(parse(stack)))
    renamed = changed(stack, "kai.binder_service_account", "product-binder")
    text = json.dumps(reservation_guard.guard_policy(parse(renamed)))
    assert "system:serviceaccount:kai-elsewhere:product-binder" in text
    assert ":binder" not in text


def test_the_guard_grants_nothing_on_the_rung_none() -> None:
    text = json.dumps(reservation_guard.guard_policy(parse(unprivileged())))
    assert "no pod here may, since reservation.privilege is none" in text
    assert "nvidia-libs" not in text
    assert "jetson" not in text
    [variable] = [
        variable
        for variable in reservation_guard.guard_policy(parse(unprivileged()))["spec"]["variables"]
        if variable["name"] == "specs"
    ]
    assert variable["expression"].endswith("dyn(false)])")


def test_the_guard_lifts_the_check_of_privilege_on_nodes_of_that_rung_alone() -> None:
    def expression(stack: dict[str, object], name: str) -> str:
        variables = reservation_guard.guard_policy(parse(stack))["spec"]["variables"]
        return str({variable["name"]: variable["expression"] for variable in variables}[name])

    devices = changed(jetson(), "reservation.privilege", "devices")
    assert "(b[3]) ? []" in expression(jetson(), "privileged")
    assert "(b[3] && b[2].spec.?nodeName.orValue('') in [\"jetson-3\"]) ? []" in expression(rungs(), "privileged")
    assert "(false) ? []" in expression(devices, "privileged")
    for stack in (jetson(), rungs(), devices):
        assert "(b[3]) ? []" in expression(stack, "host_paths")
    assert "/dev" not in expression(devices, "differences")


def test_the_guard_says_who_may_what() -> None:
    text = json.dumps(reservation_guard.guard_policy(parse(rungs())))
    assert "only KAI's own reservation pod may, on these Tegra nodes: jetson-3; " in text
    assert "only KAI's own reservation pod may read its driver's libraries, on these Tegra nodes: jetson-2" in text
