"""What a stack registers, below whom, and by which provider; and what it does not register."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pulumi.runtime.rpc import UNKNOWN

from cluster.ownership.deployed_state import DeployedState
from manifests import every_object
from testbed.stacks import (
    STACKS,
    WEBHOOK_STACKS,
    Json,
    cert_manager,
    changed,
    gvirtus,
    gvirtus_full,
    gvirtus_webhook,
    jetson,
    monitoring,
    monitoring_full,
    never,
    operator_elsewhere,
    parse,
    stack_certificates,
    time_slicing,
    webhook,
    without,
    x86,
)
from tests.support.recording_monitor import SERVICE_ADDRESS
from tests.unit.components.programs import CLUSTER_UID, KUBECONFIG, PROVIDER, preview, up

_SIGNATURE, _SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
"""How Pulumi's wire format marks a value, and a secret."""
_SWITCHES = {"enableConfigMapMutable": "true", "upsertExistingObjects": "true"}
"""Of the provider: a ConfigMap is changed in its place, and an object that is there already is applied to."""
_TOP = "KaiAnywhere:kai-anywhere"
_COMPONENTS = {
    "NodeLabels:node-labels",
    "GpuOperator:gpu-operator",
    "ReservationOverrides:reservation",
    "KaiScheduler:kai-scheduler",
    "PodGuard:pod-guard",
}
_GVIRTUS = "Gvirtus:gvirtus"

_ADMISSION = "AdmissionServer:admission"
_MONITORING = "Monitoring:monitoring"


def test_the_jetson_stack_is_this_tree() -> None:
    graph = preview(jetson())
    assert graph.below("") == {_TOP}
    assert graph.below(_TOP) == {PROVIDER, *_COMPONENTS}
    assert graph.below("NodeLabels:node-labels") == {"NodePatch:node-labels-jetson-1"}
    assert graph.below("GpuOperator:gpu-operator") == {
        "Namespace:gpu-operator-namespace",
        "Release:gpu-operator",
        "ConfigMap:gpu-operator-endpoints",
        "NodeFeatureRule:gpu-operator-tegra",
    }
    assert graph.below("ReservationOverrides:reservation") == {
        "Namespace:reservation-namespace",
        "ValidatingAdmissionPolicy:reservation-guard",
        "ValidatingAdmissionPolicyBinding:reservation-guard-binding",
        "MutatingAdmissionPolicy:reservation-policy",
        "MutatingAdmissionPolicyBinding:reservation-binding",
        "MutatingAdmissionPolicy:reservation-index-policy",
        "MutatingAdmissionPolicyBinding:reservation-index-binding",
    }
    assert graph.below("KaiScheduler:kai-scheduler") == {
        "Namespace:kai-scheduler-namespace",
        "Release:kai-scheduler",
        "SchedulingShard:kai-scheduler-shard",
        "Queue:kai-scheduler-queue-default-parent-queue",
        "Queue:kai-scheduler-queue-default-queue",
        "Queue:kai-scheduler-queue-edge",
        "Queue:kai-scheduler-queue-robots",
    }


@pytest.mark.parametrize("stack", [x86(), time_slicing()])
def test_an_x86_stack_changes_no_pod_but_guards_the_namespace(stack: dict[str, object]) -> None:
    graph = preview(stack)
    assert not [token for token in graph.types if "Mutating" in token or "NodeFeatureRule" in token]
    assert graph.below("ReservationOverrides:reservation") == {
        "Namespace:reservation-namespace",
        "ValidatingAdmissionPolicy:reservation-guard",
        "ValidatingAdmissionPolicyBinding:reservation-guard-binding",
    }


def test_an_x86_stack_that_names_no_node_labels_none() -> None:
    assert preview(x86()).below("NodeLabels:node-labels") == set()


def test_overrides_never_take_the_mutation_away_and_nothing_else() -> None:
    on, off = preview(jetson()), preview(never())
    assert on.by_key.keys() - off.by_key.keys() == {
        "MutatingAdmissionPolicy:reservation-policy",
        "MutatingAdmissionPolicyBinding:reservation-binding",
        "MutatingAdmissionPolicy:reservation-index-policy",
        "MutatingAdmissionPolicyBinding:reservation-index-binding",
    }
    assert not off.by_key.keys() - on.by_key.keys()
    labels = off.by_key["Namespace:reservation-namespace"].inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


def test_profiles_are_registered_where_there_are_any() -> None:
    def profiles(stack: Json) -> list[str]:
        return [
            key for key in preview(stack).by_key if key.startswith("ConfigMap:gpu-operator-device-plugin-profiles-")
        ]

    four = time_slicing()
    [of_four] = profiles(four)
    [of_eight] = profiles(changed(four, "node_profiles.sliced.replicas", 8))
    assert of_four != of_eight, "another content is another resource: a replacement is deleted once it is put back"
    assert profiles(x86()) == []


def test_service_discovery_is_absent_where_it_is_off() -> None:
    off = preview(changed(x86(), "gpu_operator.service_discovery", False))
    assert "ConfigMap:gpu-operator-endpoints" not in off.by_key


def test_an_operator_that_somebody_else_runs_is_not_touched() -> None:
    graph = preview(operator_elsewhere())
    assert graph.below("GpuOperator:gpu-operator") == set()
    assert "Release:kai-scheduler" in graph.by_key


def test_a_stack_without_the_section_has_nothing_of_remote_gpus() -> None:
    graph = preview(jetson())
    assert _GVIRTUS not in graph.by_key
    assert "gvirtus" not in json.dumps([registered.inputs for registered in graph.registrations])


def test_remote_gpus_are_this_tree() -> None:
    graph = preview(gvirtus())
    assert graph.below(_TOP) == {PROVIDER, *_COMPONENTS, _GVIRTUS}
    assert graph.below(_GVIRTUS) == {
        "NodeFeatureRule:gvirtus-roles",
        "Namespace:gvirtus-namespace",
        "NetworkPolicy:gvirtus-clients",
        "Service:gvirtus-service-gpu-a",
        "Service:gvirtus-service-gpu-b",
        "Deployment:gvirtus-backend-gpu-a",
        "Deployment:gvirtus-backend-gpu-b",
        "ValidatingAdmissionPolicy:gvirtus-requests",
        "ValidatingAdmissionPolicyBinding:gvirtus-requests-binding",
        "MutatingAdmissionPolicy:gvirtus-gvirtus-injection",
        "MutatingAdmissionPolicyBinding:gvirtus-gvirtus-injection-binding",
        "MutatingAdmissionPolicy:gvirtus-lupine-injection",
        "MutatingAdmissionPolicyBinding:gvirtus-lupine-injection-binding",
        "MutatingAdmissionPolicy:gvirtus-placement",
        "MutatingAdmissionPolicyBinding:gvirtus-placement-binding",
        "ValidatingAdmissionPolicy:gvirtus-guard",
        "ValidatingAdmissionPolicyBinding:gvirtus-guard-binding",
        "Namespace:gvirtus-frontends-namespace",
        "DaemonSet:gvirtus-device-plugin",
    }


def test_without_frontends_no_other_pods_of_the_cluster_are_touched() -> None:
    graph = preview(without(gvirtus(), "gvirtus.frontends"))
    gone = preview(gvirtus()).by_key.keys() - graph.by_key.keys()
    assert gone == {
        "MutatingAdmissionPolicy:gvirtus-placement",
        "MutatingAdmissionPolicyBinding:gvirtus-placement-binding",
        "ValidatingAdmissionPolicy:gvirtus-guard",
        "ValidatingAdmissionPolicyBinding:gvirtus-guard-binding",
        "Namespace:gvirtus-frontends-namespace",
        "DaemonSet:gvirtus-device-plugin",
    }


def test_a_kind_that_no_backend_has_gets_no_policy() -> None:
    graph = preview(without(gvirtus(), "gvirtus.backends.gpu-b"))
    assert not [key for key in graph.by_key if "lupine" in key]
    assert "MutatingAdmissionPolicy:gvirtus-gvirtus-injection" in graph.by_key


def test_without_the_operators_nfd_frontends_are_the_nodes_that_the_stack_names() -> None:
    graph = preview(gvirtus_full())
    assert not [key for key in graph.by_key if key.startswith("NodeFeatureRule:")]
    inputs = graph.by_key["NodePatch:gvirtus-frontend-cpu-1"].inputs
    assert inputs["metadata"]["labels"] == {"gvirtus.io/frontend.allowed": "true"}


def test_the_first_preview_knows_every_policy_before_there_is_an_address() -> None:
    graph = preview(gvirtus())
    for key, registered in graph.by_key.items():
        if "Policy" in key:
            assert UNKNOWN not in json.dumps(registered.inputs), key


def test_by_the_webhook_the_server_is_told_the_backends_and_no_policy_changes_a_pod() -> None:
    by_policy, by_webhook = preview(gvirtus()).below(_GVIRTUS), preview(gvirtus_webhook()).below(_GVIRTUS)
    assert by_policy - by_webhook == {
        "MutatingAdmissionPolicy:gvirtus-gvirtus-injection",
        "MutatingAdmissionPolicyBinding:gvirtus-gvirtus-injection-binding",
        "MutatingAdmissionPolicy:gvirtus-lupine-injection",
        "MutatingAdmissionPolicyBinding:gvirtus-lupine-injection-binding",
        "MutatingAdmissionPolicy:gvirtus-placement",
        "MutatingAdmissionPolicyBinding:gvirtus-placement-binding",
    }
    assert by_webhook - by_policy == {"ConfigMap:gvirtus-webhook-backends"}
    assert not [token for token in preview(gvirtus_webhook()).types if "MutatingAdmissionPolicy" in token]


def test_the_server_of_remote_gpus_alone_has_one_webhook() -> None:
    graph = preview(changed(gvirtus_webhook(), "reservation.overrides", "never"))
    assert {key for key in graph.below(_ADMISSION) if key.startswith("MutatingWebhookConfiguration:")} == {
        "MutatingWebhookConfiguration:admission-gvirtus-webhook"
    }
    only_reservation = preview(changed(gvirtus(), "admission.image", "agents:1"))
    assert _ADMISSION not in only_reservation.by_key


def test_the_server_is_told_real_addresses_once_they_are_known(config_path: str) -> None:
    key = "ConfigMap:gvirtus-webhook-backends"
    planned, done = preview(gvirtus_webhook()), up(gvirtus_webhook(), config_path)
    assert planned.by_key[key].inputs["data"] == UNKNOWN
    assert planned.by_key[key].inputs["metadata"]["namespace"] == "kai-anywhere"
    assert json.loads(done.by_key[key].inputs["data"]["gvirtus-endpoints.json"]) == {
        "gpu-a": f"{SERVICE_ADDRESS}:9999",
        "gpu-b": f"{SERVICE_ADDRESS}:14833",
    }
    for other, registered in planned.by_key.items():
        if "Policy" in other or "Webhook" in other:
            assert UNKNOWN not in json.dumps(registered.inputs), other


@pytest.mark.parametrize("name", STACKS)
def test_every_kubernetes_resource_goes_through_our_provider(name: str) -> None:
    graph = preview(STACKS[name]())
    kubernetes = [registered for registered in graph.registrations if registered.type.startswith("kubernetes:")]
    assert kubernetes
    assert {registered.provider for registered in kubernetes} == {PROVIDER}
    others = {registered.type for registered in graph.registrations if registered not in kubernetes}
    assert {token for token in others if not token.startswith("kai-anywhere:")} == {"pulumi:providers:kubernetes"}


@pytest.mark.parametrize("name", STACKS)
def test_every_resource_has_a_component_as_parent(name: str) -> None:
    graph = preview(STACKS[name]())
    for registered in graph.registrations:
        components = {*_COMPONENTS, _GVIRTUS, _ADMISSION, _MONITORING}
        expected = {""} if registered.key == _TOP else {_TOP} if registered.key in {PROVIDER, *components} else None
        assert registered.parent in (expected or components), registered.key


@pytest.mark.parametrize("name", STACKS)
def test_the_registered_objects_are_the_manifests_of_the_stack(name: str) -> None:
    graph = preview(STACKS[name](), deployed=True)
    registered = {
        (inputs["kind"], inputs["metadata"]["name"]): _without_authority(inputs)
        for inputs in (registration.inputs for registration in graph.registrations)
        if "kind" in inputs
    }
    nodes = {key for key in registered if key[0] == "Node"}
    expected = {
        (manifest["kind"], manifest["metadata"]["name"]): manifest
        for manifest in _with_addresses(every_object.objects(parse(STACKS[name]()))).values()
    }
    assert registered.keys() - nodes == expected.keys()
    for key, manifest in expected.items():
        metadata = registered[key]["metadata"]
        manager = metadata["annotations"].pop("pulumi.com/patchFieldManager")
        assert manager.startswith("kai-anywhere/kai-anywhere/test/"), "the run after a killed one knows what is ours"
        assert metadata["annotations"].pop("pulumi.com/patchForce") == "true", "a field edited by hand is taken back"
        deletion = metadata["annotations"].pop("pulumi.com/deletionPropagationPolicy", None)
        assert deletion == ("background" if key[0] in _OF_CHARTS else None), (
            "only what a chart defines waits for nobody"
        )
        if not metadata["annotations"]:
            del metadata["annotations"]
        assert registered[key] == manifest, key


_OF_CHARTS = {"NodeFeatureRule", "Queue", "SchedulingShard", "Certificate", "ServiceMonitor", "PrometheusRule"}


def _with_addresses(objects: Mapping[str, Any]) -> dict[str, Any]:
    """The manifests with the address that the cluster gave to each Service."""
    complete: dict[str, Any] = json.loads(json.dumps(objects).replace("192.0.2.1", SERVICE_ADDRESS))
    return complete


def _without_authority(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the component adds to the manifests of a stack that publishes an authority."""
    if inputs["kind"] == "Secret":
        return {key: value for key, value in inputs.items() if key != "data"}
    if inputs["kind"] != "MutatingWebhookConfiguration":
        return inputs
    webhooks = [
        webhook | {"clientConfig": {key: value for key, value in webhook["clientConfig"].items() if key != "caBundle"}}
        for webhook in inputs["webhooks"]
    ]
    return {**inputs, "webhooks": webhooks}


@pytest.mark.parametrize("name", STACKS)
def test_the_registered_releases_are_those_of_the_stack_under_fixed_names(name: str) -> None:
    graph = preview(STACKS[name]())
    registered = {
        registration.inputs["name"]: registration.inputs
        for registration in graph.registrations
        if registration.type == "kubernetes:helm.sh/v3:Release"
    }
    releases = {release.name: release for release in every_object.releases(parse(STACKS[name]())).values()}
    assert registered.keys() == releases.keys()
    for release in releases.values():
        inputs = registered[release.name]
        assert inputs["values"] == release.values
        assert (inputs["namespace"], inputs["chart"]) == (release.namespace, release.source.chart)
        assert inputs.get("version") == release.source.version
        assert inputs.get("repositoryOpts", {}).get("repo") == release.source.repository
        assert inputs["timeout"] == release.timeout_seconds


def test_node_labels_take_fields_back_that_somebody_edited() -> None:
    inputs = preview(jetson()).by_key["NodePatch:node-labels-jetson-1"].inputs
    assert inputs["metadata"]["name"] == "jetson-1"
    assert inputs["metadata"]["annotations"] == {
        "pulumi.com/patchForce": "true",
        "pulumi.com/patchFieldManager": "kai-anywhere/kai-anywhere/test/node-labels-jetson-1",
    }
    assert inputs["metadata"]["labels"]["nvidia.com/gpu.memory"] == "122880"


def test_the_provider_knows_the_cluster_by_its_identity_alone() -> None:
    expected = {"clusterIdentifier": CLUSTER_UID, "kubeconfig": KUBECONFIG} | _SWITCHES
    stack = changed(jetson(), "cluster.kubeconfig", "/etc/kubernetes/admin.conf")
    for other_stack in (jetson(), changed(stack, "cluster.context", "edge")):
        assert preview(other_stack).by_key[PROVIDER].inputs == expected


def test_what_is_adopted_stands_in_the_state_before_anything_of_the_cluster_is_written() -> None:
    kept = {"Namespace/gpu-operator": {"metadata": {"labels": {"team": "robots"}}}}
    graph = preview(jetson(), adopted=kept)
    [stash] = graph.types & {"pulumi:index:Stash"}
    remembered = graph.by_key[f"{stash.rpartition(':')[2]}:kai-anywhere-adopted"]
    assert DeployedState.of([(stash, remembered.inputs)]).begun == kept
    assert remembered.key in graph.by_key[PROVIDER].dependencies
    assert "pulumi:index:Stash" not in preview(jetson()).types


def test_a_preview_without_a_cluster_has_no_identity_and_contacts_nothing() -> None:
    inputs = preview(jetson(), cluster_uid=None).by_key[PROVIDER].inputs
    assert inputs == {"kubeconfig": "~/.kai-anywhere/clusters/none"} | _SWITCHES


def test_a_webhook_stack_has_the_server_instead_of_the_policy() -> None:
    by_policy, by_webhook = preview(jetson()), preview(webhook())
    assert by_policy.by_key.keys() - by_webhook.by_key.keys() == {
        "MutatingAdmissionPolicy:reservation-policy",
        "MutatingAdmissionPolicyBinding:reservation-binding",
        "MutatingAdmissionPolicy:reservation-index-policy",
        "MutatingAdmissionPolicyBinding:reservation-index-binding",
    }
    added = by_webhook.by_key.keys() - by_policy.by_key.keys()
    assert added == {_ADMISSION} | by_webhook.below(_ADMISSION)
    assert {key for key in by_webhook.below(_ADMISSION) if "webhook" in key} == {
        "MutatingWebhookConfiguration:admission-reservation-webhook"
    }


@pytest.mark.parametrize("name", sorted(WEBHOOK_STACKS))
def test_no_webhook_is_without_its_server_on_the_way_up_or_down(name: str) -> None:
    graph = preview(STACKS[name]())
    deployment, budget = "Deployment:admission-deployment", "PodDisruptionBudget:admission-disruption-budget"
    webhooks = {key for key in graph.below(_ADMISSION) if key.startswith("MutatingWebhookConfiguration:")}
    assert webhooks
    assert graph.by_key[deployment].dependencies >= graph.below(_ADMISSION) - webhooks - {deployment, budget}
    for configuration in webhooks:
        assert deployment in graph.by_key[configuration].dependencies, "deleted before its server"
    assert graph.by_key[budget].dependencies >= {*webhooks, deployment}
    assert {deployment, budget, *webhooks} <= graph.by_key["Release:kai-scheduler"].dependencies


def test_an_authority_of_the_stack_is_made_once_and_trusted_by_every_webhook() -> None:
    by_key = preview(stack_certificates(), deployed=True).by_key
    secrets = [by_key[f"Secret:admission-authority-{name}"] for name in ("a", "b")]
    for secret in secrets:
        assert secret.ignored == {"data"}, "or each run would make another one"
        assert secret.secret_outputs == {"data"}
    data = [secret.inputs["data"] for secret in secrets]
    assert all(datum[_SIGNATURE] == _SECRET for datum in data), "in the state, too"
    [hook] = by_key["MutatingWebhookConfiguration:admission-reservation-webhook"].inputs["webhooks"]
    bundle = base64.b64decode(hook["clientConfig"]["caBundle"])
    assert bundle == b"".join(base64.b64decode(datum["value"]["ca.crt"]) for datum in data)
    assert b"PRIVATE KEY" not in bundle
    for other in (webhook(), cert_manager()):
        configuration = preview(other).by_key["MutatingWebhookConfiguration:admission-reservation-webhook"]
        assert "caBundle" not in configuration.inputs["webhooks"][0]["clientConfig"], "somebody else's field"


def test_a_stack_has_no_metrics_unless_it_asks_for_them() -> None:
    graph = preview(jetson())
    assert _MONITORING not in graph.by_key
    assert "metrics" not in {registered.inputs.get("metadata", {}).get("name") for registered in graph.registrations}


def test_metrics_for_a_prometheus_without_operator_are_this_tree() -> None:
    before, after = preview(jetson()), preview(monitoring())
    assert after.by_key.keys() - before.by_key.keys() == {_MONITORING} | after.below(_MONITORING)
    assert after.below(_MONITORING) == {
        "Namespace:monitoring-namespace",
        "ServiceAccount:monitoring-service-account",
        "ClusterRole:monitoring-cluster-role",
        "ClusterRoleBinding:monitoring-cluster-role-binding",
        "NetworkPolicy:monitoring-network-policy",
        "Service:monitoring-service",
        "Deployment:monitoring-deployment",
        "ConfigMap:monitoring-alerts",
        "ConfigMap:monitoring-dashboard-sharing",
        "ConfigMap:monitoring-dashboard-kai",
    }
    rights = {"ClusterRole:monitoring-cluster-role", "ClusterRoleBinding:monitoring-cluster-role-binding"}
    assert after.by_key["Deployment:monitoring-deployment"].dependencies >= rights


def test_metrics_for_the_prometheus_operator_are_its_own_kinds() -> None:
    below = preview(monitoring_full()).below(_MONITORING)
    assert {
        "ServiceMonitor:monitoring-service-monitor",
        "ServiceMonitor:monitoring-kai-service-monitor",
        "PrometheusRule:monitoring-alerts",
        "ConfigMap:monitoring-dashboard-dcgm",
    } <= below
    assert "ConfigMap:monitoring-alerts" not in below
    without_dashboards = preview(changed(monitoring_full(), "monitoring.dashboards.enabled", False)).below(_MONITORING)
    assert not [key for key in without_dashboards if "dashboard" in key]
