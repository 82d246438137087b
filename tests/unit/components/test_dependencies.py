"""What waits for what; the engine destroys in the opposite order."""

import pytest

from manifests.gpu_operator import time_slicing_config
from testbed.stacks import (
    changed,
    gvirtus,
    gvirtus_webhook,
    jetson,
    mixed,
    operator_elsewhere,
    parse,
    time_slicing,
    x86,
)
from tests.support.recording_monitor import Graph
from tests.unit.components.programs import preview, up


def _dependencies(graph: Graph, key: str) -> frozenset[str]:
    return graph.by_key[key].dependencies


def test_the_operator_and_kai_wait_for_the_labels_of_every_node() -> None:
    labels = {f"NodePatch:node-labels-{node}" for node in ("jetson-1", "jetson-2", "spark-1")}
    graph = preview(mixed())
    assert labels <= _dependencies(graph, "Release:gpu-operator"), (
        "the operator would roll operands out on a Jetson, only to take them back"
    )
    assert labels <= _dependencies(graph, "Release:kai-scheduler")


def test_no_namespace_waits_for_labels_or_releases_so_that_a_destroy_deletes_all_of_them_in_one_step() -> None:
    graph = preview(mixed())
    namespaces = [key for key in graph.by_key if key.startswith("Namespace:")]
    # What a component waits for, its children wait for too.
    components = [graph.by_key[key].parent for key in namespaces]
    assert len(set(components)) == 3
    assert [key for key in (*namespaces, *components) if _dependencies(graph, key)] == []


def test_the_operators_release_waits_for_its_namespace_profiles_and_the_labels() -> None:
    profiles = time_slicing_config(parse(time_slicing()))
    assert profiles is not None
    before = {"Namespace:gpu-operator-namespace", f"ConfigMap:gpu-operator-{profiles['metadata']['name']}"}
    labels = {"NodePatch:node-labels-gpu-7", "NodePatch:node-labels-gpu-8", "NodePatch:node-labels-gpu-9"}
    assert _dependencies(preview(time_slicing()), "Release:gpu-operator") == before | labels
    assert _dependencies(preview(x86()), "Release:gpu-operator") == {"Namespace:gpu-operator-namespace"}


def test_the_feature_rule_waits_for_the_release_that_brings_its_kind() -> None:
    assert _dependencies(preview(jetson()), "NodeFeatureRule:gpu-operator-tegra") == {"Release:gpu-operator"}


@pytest.mark.parametrize("kind", ["guard", "policy"])
def test_a_binding_waits_for_its_policy(kind: str) -> None:
    graph = preview(jetson())
    policies = {"guard": "ValidatingAdmissionPolicy", "policy": "MutatingAdmissionPolicy"}
    binding = "reservation-guard-binding" if kind == "guard" else "reservation-binding"
    assert _dependencies(graph, f"{policies[kind]}Binding:{binding}") == {f"{policies[kind]}:reservation-{kind}"}


def test_kai_waits_for_the_operator_the_overrides_and_its_namespace() -> None:
    graph = preview(jetson())
    assert _dependencies(graph, "Release:kai-scheduler") == {
        "Namespace:kai-scheduler-namespace",
        "Release:gpu-operator",
        "NodeFeatureRule:gpu-operator-tegra",
        "NodePatch:node-labels-jetson-1",
        *graph.below("ReservationOverrides:reservation"),
    }


def test_kai_waits_for_the_overrides_where_somebody_else_runs_the_operator() -> None:
    graph = preview(operator_elsewhere())
    assert _dependencies(graph, "Release:kai-scheduler") == {
        "Namespace:kai-scheduler-namespace",
        "NodePatch:node-labels-jetson-1",
        *graph.below("ReservationOverrides:reservation"),
    }


def test_the_shard_is_taken_over_after_the_release_made_it() -> None:
    assert _dependencies(preview(x86()), "SchedulingShard:kai-scheduler-shard") == {"Release:kai-scheduler"}


def test_a_queue_waits_for_the_release_and_its_parent() -> None:
    queues = {"a": {"parent": "b"}, "b": {"parent": "c"}, "c": {}}
    graph = preview(changed(x86(), "kai.queues", queues))

    def of(queue: str) -> frozenset[str]:
        return _dependencies(graph, f"Queue:kai-scheduler-queue-{queue}")

    assert of("c") == {"Release:kai-scheduler"}
    assert of("b") == {"Release:kai-scheduler", "Queue:kai-scheduler-queue-c"}
    assert of("a") == {"Release:kai-scheduler", "Queue:kai-scheduler-queue-b"}


def test_remote_gpus_come_last() -> None:
    graph = preview(gvirtus())
    order = list(graph.by_key)
    first = min(order.index(key) for key in graph.below("Gvirtus:gvirtus"))
    assert all(order.index(key) < first for key in graph.below("KaiScheduler:kai-scheduler"))


def test_a_backend_waits_for_its_fence_and_the_gpu_operator() -> None:
    of = _dependencies(preview(gvirtus()), "Deployment:gvirtus-backend-gpu-a")
    assert {"NetworkPolicy:gvirtus-clients", "Release:gpu-operator"} <= of


def test_pods_are_connected_only_once_addresses_are_known_and_refusals_in_force() -> None:
    graph = preview(gvirtus())
    services = {f"Service:gvirtus-service-gpu-{x}" for x in "ab"}
    assert services <= _dependencies(graph, "ValidatingAdmissionPolicy:gvirtus-requests")
    for kind in ("gvirtus", "lupine"):
        policy = f"MutatingAdmissionPolicy:gvirtus-{kind}-injection"
        assert "ValidatingAdmissionPolicyBinding:gvirtus-requests-binding" in _dependencies(graph, policy)
        binding = f"MutatingAdmissionPolicyBinding:gvirtus-{kind}-injection-binding"
        assert policy in _dependencies(graph, binding)


def test_the_server_is_told_of_backends_after_it_runs_and_refusals_are_in_force() -> None:
    graph = preview(gvirtus_webhook())
    of = _dependencies(graph, "ConfigMap:gvirtus-webhook-backends")
    assert {f"Service:gvirtus-service-gpu-{x}" for x in "ab"} <= of
    assert {"Deployment:admission-deployment", "Namespace:admission-namespace"} <= of
    assert "ValidatingAdmissionPolicyBinding:gvirtus-requests-binding" in of
    server = graph.below("AdmissionServer:admission")
    waiting = {key for key in server if _dependencies(graph, key) & graph.below("Gvirtus:gvirtus")}
    assert waiting == set(), "the server would wait for backends, which wait for KAI, which waits for the server"
    assert "Deployment:admission-deployment" in _dependencies(graph, "Release:kai-scheduler")


def test_labelled_pods_are_refused_from_the_start_and_not_let_in_unchanged() -> None:
    order = list(preview(gvirtus_webhook()).by_key)
    webhook = order.index("MutatingWebhookConfiguration:admission-gvirtus-webhook")
    assert webhook < order.index("Release:kai-scheduler") < order.index("ConfigMap:gvirtus-webhook-backends")


def test_no_device_is_advertised_before_ordinary_pods_are_kept_away() -> None:
    of = _dependencies(preview(gvirtus()), "DaemonSet:gvirtus-device-plugin")
    assert "ValidatingAdmissionPolicyBinding:gvirtus-guard-binding" in of


def test_an_up_has_the_dependencies_of_its_preview(config_path: str) -> None:
    planned, done = preview(jetson()), up(jetson(), config_path)
    assert {key: registered.dependencies for key, registered in done.by_key.items()} == {
        key: registered.dependencies for key, registered in planned.by_key.items()
    }


def test_the_pod_guard_comes_after_the_stacks_own_releases_and_nothing_waits_for_it() -> None:
    graph = preview(jetson())
    waited = _dependencies(graph, "ValidatingAdmissionPolicy:pod-guard-policy")
    assert {"Release:gpu-operator", "Release:kai-scheduler"} <= waited, "a release refused midway is left half-done"
    binding = "ValidatingAdmissionPolicyBinding:pod-guard-binding"
    assert _dependencies(graph, binding) == {"ValidatingAdmissionPolicy:pod-guard-policy"}
    guard = {"PodGuard:pod-guard", *graph.below("PodGuard:pod-guard")}
    assert not [key for key in graph.by_key if key not in guard and guard & _dependencies(graph, key)]


def test_the_pod_guard_does_not_wait_for_the_frontends_that_it_has_to_let_in() -> None:
    graph = preview(gvirtus())
    waited = _dependencies(graph, "ValidatingAdmissionPolicy:pod-guard-policy")
    assert {"Release:gpu-operator", "Release:kai-scheduler"} <= waited
    assert not waited & {"Gvirtus:gvirtus", *graph.below("Gvirtus:gvirtus")}


def test_the_pod_guard_needs_no_operator_of_ours() -> None:
    waited = _dependencies(preview(operator_elsewhere()), "ValidatingAdmissionPolicy:pod-guard-policy")
    assert "Release:kai-scheduler" in waited
    assert "Release:gpu-operator" not in waited
