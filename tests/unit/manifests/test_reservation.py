"""What reservation pods get on Tegra nodes, what they never get elsewhere, and the guard around both.

That the policy's expressions do what they say is proven on a real API server, in tests/engine.
"""

import json

import pytest

from config.platform import TegraPlatform
from manifests import every_object, pod_guard, reservation, reservation_guard
from manifests.reservation import tegra_fragment
from testbed.stacks import STACKS, changed, jetson, mixed, never, parse, spark, x86
from tests.support.values import documents_of

_X86 = ["x86", "spark", "time-slicing", "k8s-snap", "air-gapped"]


def _tegra(stack: dict[str, object]) -> TegraPlatform:
    platform = parse(stack).platform
    assert isinstance(platform, TegraPlatform)
    return platform


def test_the_fragment_is_the_platform_table() -> None:
    libraries = "/usr/lib/aarch64-linux-gnu/nvidia"
    assert tegra_fragment(_tegra(jetson())).model_dump(exclude={"container_missing"}, exclude_defaults=True) == {
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


def test_the_folders_of_another_jetpack_reach_mounts_and_environment() -> None:
    stack = changed(jetson(), "platform.driver_library_path", "/usr/lib/aarch64-linux-gnu/tegra")
    fragment = tegra_fragment(_tegra(changed(stack, "platform.device_path", "/host/dev")))
    folders = ["/usr/lib/aarch64-linux-gnu/tegra", "/host/dev"]
    assert fragment.env[-1] == {"name": "LD_LIBRARY_PATH", "value": folders[0]}
    assert [volume["hostPath"]["path"] for volume in fragment.volumes] == folders
    assert [mount["mountPath"] for mount in fragment.volume_mounts] == folders


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
    names = [each["name"] for each in reservation_guard.guard_policy(parse(jetson()))["spec"]["variables"]]
    assert len(names) == len(set(names)), "one would hide the other"
    assert {"host_paths", "host_ports", "profiles", "selinux_types"} <= set(names)
    assert set(names).isdisjoint({"images", "node_names", "unrequested_gpus"})


@pytest.mark.parametrize("stack", [x86(), spark(), never()])
def test_the_guard_of_a_stack_without_overrides_grants_nothing(stack: dict[str, object]) -> None:
    policy = reservation_guard.guard_policy(parse(stack))
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert variables["specs"].endswith("dyn(false)])")
    text = json.dumps(policy)
    assert "nvidia-libs" not in text
    assert "jetson" not in text


def test_the_guard_knows_kais_binder_by_the_stacks_namespace() -> None:
    text = json.dumps(reservation_guard.guard_policy(parse(changed(jetson(), "kai.namespace", "kai-elsewhere"))))
    assert "system:serviceaccount:kai-elsewhere:binder" in text
