"""The operators' decisions, by value."""

from dataclasses import replace
from typing import Any

import pytest

from manifests.gvirtus import frontends as gvirtus_frontends
from manifests.gvirtus.frontends import roles_rule
from simulator.nodes import NodeKind, manifest
from simulator.operands import device_plugin, gpu_operator, kai, nfd
from simulator.operands.world import (
    APPLIED_ANNOTATION,
    Apply,
    Decision,
    Delete,
    Endpoint,
    Merge,
    Object,
    Ref,
    World,
    keep,
)
from testbed.stacks import changed, gvirtus, parse

PCI = "feature.node.kubernetes.io/pci-10de.present"
AVAILABLE = {"conditions": [{"type": "Available", "status": "True"}]}


def deployment(name: str, namespace: str = "ns", **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"selector": {"matchLabels": {"app": name}}},
        "status": AVAILABLE,
    }


def node(kind: NodeKind, name: str = "n", **labels: str) -> dict[str, Any]:
    made = manifest(name, kind)
    made["metadata"]["labels"] |= labels
    return made


def policy(**spec: object) -> dict[str, Any]:
    metadata = {"name": "cluster-policy", "uid": "policy-uid"}
    return {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": metadata, "spec": spec}


def rule(*, name: str = "n", feature: str = "system.name", op: str = "In", **extra: object) -> dict[str, Any]:
    term = {"feature": feature, "matchExpressions": {"nodename": {"op": op, "value": [name]}}}
    entry = {"name": "r", "labels": {"pci-10de.present": "true"}, "matchFeatures": [term], **extra}
    return {"metadata": {"name": "rules"}, "spec": {"rules": [entry]}}


def names(decision: Decision, kind: type, of: str) -> set[str]:
    """Names of the objects of kind `of` that changes of class `kind` are about."""
    found = set()
    for change in decision.changes:
        match change:
            case Apply(applied) if kind is Apply and applied["kind"] == of:
                found.add(applied["metadata"]["name"])
            case Merge(ref) | Delete(ref) if isinstance(change, kind) and ref.kind == of:
                found.add(ref.name)
    return found


def applied(decision: Decision, name: str, kind: str | None = None) -> Object:
    manifests = [change.manifest for change in decision.changes if isinstance(change, Apply)]
    [found] = [m for m in manifests if m["metadata"]["name"] == name and kind in {None, m["kind"]}]
    return found


MASTER = deployment("gpu-operator-node-feature-discovery-master")


def test_a_rule_labels_the_node_it_names_and_no_other() -> None:
    world = World(
        nodes=(node(NodeKind.JETSON), node(NodeKind.JETSON, "other")),
        deployments=(MASTER,),
        node_feature_rules=(rule(),),
    )
    patch = {"metadata": {"labels": {PCI: "true"}, "annotations": {nfd.LABELS_ANNOTATION: PCI}}}
    assert nfd.decide(world) == Decision((Merge(Ref("v1", "Node", "n"), patch),))


def test_a_labelled_node_needs_no_change() -> None:
    labelled = node(NodeKind.JETSON, **{PCI: "true"})
    labelled["metadata"]["annotations"][nfd.LABELS_ANNOTATION] = PCI
    world = World(nodes=(labelled,), deployments=(MASTER,), node_feature_rules=(rule(),))
    assert nfd.decide(world) == Decision()


@pytest.mark.parametrize(
    ("deployments", "rules", "taken_back"),
    [
        pytest.param((MASTER,), (), True, id="the rule is gone"),
        pytest.param((), (rule(),), True, id="NFD is uninstalled"),
        pytest.param(({**MASTER, "status": {}},), (), False, id="the master is not available"),
    ],
)
def test_nfd_takes_back_only_its_own_labels(
    deployments: tuple[Object, ...], rules: tuple[Object, ...], taken_back: bool
) -> None:
    labelled = node(NodeKind.JETSON, **{PCI: "true", "mine": "too"})
    labelled["metadata"]["annotations"][nfd.LABELS_ANNOTATION] = PCI
    decision = nfd.decide(World(nodes=(labelled,), deployments=deployments, node_feature_rules=rules))
    patch = {"metadata": {"labels": {PCI: None}, "annotations": {nfd.LABELS_ANNOTATION: None}}}
    assert decision.changes == ((Merge(Ref("v1", "Node", "n"), patch),) if taken_back else ())


@pytest.mark.parametrize(
    "unsupported", [rule(feature="cpu.cpuid"), rule(op="Gt"), rule(labelsTemplate="x"), rule(extendedResources={})]
)
def test_a_rule_that_is_not_understood_is_refused_aloud(unsupported: Object) -> None:
    world = World(nodes=(node(NodeKind.JETSON),), deployments=(MASTER,), node_feature_rules=(unsupported,))
    decision = nfd.decide(world)
    assert decision.changes == ()
    assert "NodeFeatureRule rules, rule 'r' is ignored" in decision.complaints[0]


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        (NodeKind.JETSON, "gvirtus.io/backend.allowed"),
        (NodeKind.X86, "gvirtus.io/backend.allowed"),
        (NodeKind.SPARK, "gvirtus.io/backend.allowed"),
        (NodeKind.CPU, "gvirtus.io/frontend.allowed"),
    ],
)
def test_the_roles_of_remote_gpus_follow_what_the_machine_has(kind: NodeKind, role: str) -> None:
    settings = parse(changed(gvirtus(), "gvirtus.frontends.nodes", ["n"])).gvirtus
    assert settings is not None
    world = World(nodes=(node(kind),), deployments=(MASTER,), node_feature_rules=(roles_rule(settings),))
    patch = {"metadata": {"labels": {role: "true"}, "annotations": {nfd.LABELS_ANNOTATION: role}}}
    assert nfd.decide(world) == Decision((Merge(Ref("v1", "Node", "n"), patch),))


def test_a_node_that_gets_a_gpu_is_no_frontend_any_more() -> None:
    settings = parse(changed(gvirtus(), "gvirtus.frontends.nodes", ["n"])).gvirtus
    assert settings is not None
    front, back = "gvirtus.io/frontend.allowed", "gvirtus.io/backend.allowed"
    now = node(NodeKind.X86, **{front: "true"})
    now["metadata"]["annotations"][nfd.LABELS_ANNOTATION] = front
    world = World(nodes=(now,), deployments=(MASTER,), node_feature_rules=(roles_rule(settings),))
    patch = {"metadata": {"labels": {front: None, back: "true"}, "annotations": {nfd.LABELS_ANNOTATION: back}}}
    assert nfd.decide(world) == Decision((Merge(Ref("v1", "Node", "n"), patch),))


def test_a_machine_without_a_gpu_that_the_stack_does_not_name_has_no_role() -> None:
    settings = parse(gvirtus()).gvirtus
    assert settings is not None
    world = World(nodes=(node(NodeKind.CPU),), deployments=(MASTER,), node_feature_rules=(roles_rule(settings),))
    assert nfd.decide(world) == Decision()


def test_the_generic_plugin_advertises_what_its_arguments_say() -> None:
    settings = parse(gvirtus())
    assert settings.gvirtus is not None
    assert settings.gvirtus.frontends is not None
    template = gvirtus_frontends.device_plugin(settings, settings.gvirtus.frontends)["spec"]["template"]
    pod = {
        "metadata": {"name": "p", "namespace": "ns", **template["metadata"]},
        "spec": template["spec"] | {"nodeName": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    fresh = node(NodeKind.CPU)
    four = {"status": {key: {device_plugin.RESOURCE: "4"} for key in ("capacity", "allocatable")}}
    decision = device_plugin.decide(World(nodes=(fresh,), pods=(pod,)))
    assert decision == Decision((Merge(Ref("v1", "Node", "n"), four, status=True),))
    assert device_plugin.decide(World(nodes=(fresh,), pods=({**pod, "status": {}},))) == Decision()
    container = pod["spec"]["containers"][0] | {"args": ["--domain", "squat.ai", "--device", '{"name":"gpu"}']}
    other = {**pod, "spec": pod["spec"] | {"containers": [container]}}
    assert device_plugin.decide(World(nodes=(fresh,), pods=(other,))) == Decision()


def test_gpu_nodes_get_the_operators_labels_in_one_change() -> None:
    changes = gpu_operator.label_changes({PCI: "true", "nvidia.com/gpu.deploy.dcgm": "false"})
    assert changes["nvidia.com/gpu.present"] == "true"
    assert changes["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert "nvidia.com/gpu.deploy.dcgm" not in changes, "a user's false is respected"
    assert "nvidia.com/gpu.deploy.mig-manager" not in changes, "only GPUs that can do MIG get the MIG manager"
    assert gpu_operator.label_changes({PCI: "true", **{k: v for k, v in changes.items() if v}}) == {
        "nvidia.com/gpu.deploy.dcgm": "true"
    }


def test_without_the_pci_label_present_is_reset_and_every_switch_removed() -> None:
    current = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.device-plugin": "false", "other": "kept"}
    assert gpu_operator.label_changes(current) == {
        "nvidia.com/gpu.present": "false",
        "nvidia.com/gpu.deploy.device-plugin": None,
    }
    assert gpu_operator.label_changes({"nvidia.com/gpu.present": "false"}) == {}


def test_the_switch_for_all_operands_is_respected() -> None:
    current = {
        PCI: "true",
        "nvidia.com/gpu.present": "true",
        gpu_operator.ALL_OPERANDS: "false",
        "nvidia.com/gpu.deploy.dcgm": "true",
    }
    assert gpu_operator.label_changes(current) == {"nvidia.com/gpu.deploy.dcgm": None}


def gpu_world(spec: dict[str, Any]) -> World:
    gpu_node = node(NodeKind.X86, **{"nvidia.com/gpu.present": "true"})
    return World(nodes=(gpu_node,), deployments=(deployment("gpu-operator"),), cluster_policies=(policy(**spec),))


def test_enabled_operands_get_a_daemon_set_with_the_real_name() -> None:
    decision = gpu_operator.decide(gpu_world({"driver": {"enabled": False}, "dcgm": {"enabled": False}}))
    assert names(decision, Apply, "DaemonSet") == {
        "nvidia-container-toolkit-daemonset",
        "nvidia-device-plugin-daemonset",
        "nvidia-device-plugin-mps-control-daemon",
        "gpu-feature-discovery",
        "nvidia-dcgm-exporter",
        "nvidia-mig-manager",
        "nvidia-operator-validator",
    }
    assert names(decision, Apply, "Service") == {"gpu-operator", "nvidia-dcgm-exporter"}
    plugin = applied(decision, "nvidia-device-plugin-daemonset")["spec"]["template"]["spec"]
    assert plugin["runtimeClassName"] == "nvidia"
    assert plugin["nodeSelector"] == {"nvidia.com/gpu.deploy.device-plugin": "true"}
    mps = applied(decision, "nvidia-device-plugin-mps-control-daemon")["spec"]["template"]["spec"]
    assert mps["nodeSelector"] == plugin["nodeSelector"] | {"nvidia.com/mps.capable": "true"}
    toolkit = applied(decision, "nvidia-container-toolkit-daemonset")["spec"]["template"]["spec"]
    assert "runtimeClassName" not in toolkit, "the toolkit makes the class work, so it can't need it"


def test_the_runtime_class_has_the_name_of_the_policy_and_belongs_to_it() -> None:
    old = {"metadata": {"name": "nvidia", "ownerReferences": [{"uid": "policy-uid"}]}}
    foreign = {"metadata": {"name": "runc", "ownerReferences": []}}
    world = replace(gpu_world({"operator": {"runtimeClass": "other"}}), runtime_classes=(old, foreign))
    decision = gpu_operator.decide(world)
    made = applied(decision, "other")
    assert made["handler"] == "other"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "policy-uid"
    assert names(decision, Delete, "RuntimeClass") == {"nvidia"}


@pytest.mark.parametrize("cdi", [{}, {"enabled": True}], ids=["by default", "said"])
def test_with_cdi_there_are_two_more_runtime_classes(cdi: dict[str, bool]) -> None:
    decision = gpu_operator.decide(gpu_world({"cdi": cdi}))
    assert names(decision, Apply, "RuntimeClass") == {"nvidia", "nvidia-cdi", "nvidia-legacy"}
    assert applied(decision, "nvidia-legacy")["handler"] == "nvidia-legacy"
    assert applied(decision, "nvidia-cdi")["metadata"]["labels"] == {"app.kubernetes.io/component": "gpu-operator"}


def test_without_cdi_the_two_are_deleted_unless_they_are_somebody_elses() -> None:
    ours = {"metadata": {"name": "nvidia-cdi", "ownerReferences": [{"uid": "policy-uid"}]}}
    theirs = {"metadata": {"name": "nvidia-legacy"}}
    world = replace(gpu_world({"cdi": {"enabled": False}}), runtime_classes=(ours, theirs))
    decision = gpu_operator.decide(world)
    assert names(decision, Apply, "RuntimeClass") == {"nvidia"}
    assert names(decision, Delete, "RuntimeClass") == {"nvidia-cdi"}


def test_without_the_plugin_there_is_no_control_daemon_either() -> None:
    existing = {"metadata": {"name": "nvidia-device-plugin-mps-control-daemon", "namespace": "ns"}}
    world = replace(gpu_world({"devicePlugin": {"enabled": False}}), daemon_sets=(existing,))
    assert names(gpu_operator.decide(world), Delete, "DaemonSet") == {"nvidia-device-plugin-mps-control-daemon"}


def test_in_nri_mode_there_is_no_runtime_class() -> None:
    decision = gpu_operator.decide(gpu_world({"cdi": {"nriPluginEnabled": True}}))
    assert names(decision, Apply, "RuntimeClass") == set()
    assert "runtimeClassName" not in applied(decision, "gpu-feature-discovery")["spec"]["template"]["spec"]


def test_a_disabled_operand_is_deleted_with_its_service() -> None:
    existing = {"metadata": {"name": "nvidia-dcgm-exporter", "namespace": "ns"}}
    world = replace(gpu_world({"dcgmExporter": {"enabled": False}}), daemon_sets=(existing,), services=(existing,))
    decision = gpu_operator.decide(world)
    assert names(decision, Delete, "DaemonSet") == names(decision, Delete, "Service") == {"nvidia-dcgm-exporter"}


def test_without_a_gpu_node_no_daemon_set_is_created() -> None:
    world = World(nodes=(node(NodeKind.CPU),), deployments=(deployment("gpu-operator"),), cluster_policies=(policy(),))
    decision = gpu_operator.decide(world)
    assert names(decision, Apply, "DaemonSet") == set()
    assert "nvidia" in names(decision, Apply, "RuntimeClass")


@pytest.mark.parametrize(
    "world",
    [
        World(cluster_policies=(policy(),)),
        World(deployments=({**deployment("gpu-operator"), "status": {}},), cluster_policies=(policy(),)),
        World(
            deployments=({**deployment("gpu-operator"), "spec": deployment("gpu-operator")["spec"] | {"replicas": 0}},),
            cluster_policies=(policy(),),
        ),
        World(deployments=(deployment("gpu-operator"),)),
    ],
    ids=["no operator", "operator not available", "operator scaled to none", "no policy"],
)
def test_the_gpu_operator_acts_only_when_it_runs_and_has_a_policy(world: World) -> None:
    assert gpu_operator.decide(world) == Decision()


def test_what_was_applied_is_not_applied_again() -> None:
    made = {"kind": "Service", "metadata": {"name": "s", "namespace": "ns"}, "spec": {"a": 1}}
    [change] = keep(made, ())
    assert keep(made, (change.manifest,)) == ()
    assert keep({**made, "spec": {"a": 2}}, (change.manifest,))
    assert change.manifest["metadata"]["annotations"][APPLIED_ANNOTATION]


def plugin_pod(**status: object) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "labels": {"app": device_plugin.PLUGIN}},
        "spec": {"nodeName": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], **status},
    }


def quantity(gpus: int) -> Decision:
    status = {"status": {key: {device_plugin.RESOURCE: str(gpus)} for key in ("capacity", "allocatable")}}
    return Decision((Merge(Ref("v1", "Node", "n"), status, status=True),))


def sliced(profile: str | None, *, default: str = "", text: str = "") -> World:
    labels = {device_plugin.PROFILE_LABEL: profile} if profile else {}
    text = text or "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
    return World(
        nodes=(node(NodeKind.X86, **labels),),
        pods=(plugin_pod(),),
        cluster_policies=(policy(devicePlugin={"config": {"name": "plugin", "default": default}}),),
        config_maps=({"metadata": {"name": "plugin", "namespace": "ns"}, "data": {"sliced": text}},),
    )


def test_gpus_are_advertised_while_the_plugin_runs() -> None:
    fresh = node(NodeKind.X86)
    assert device_plugin.decide(World(nodes=(fresh,))) == Decision()
    assert device_plugin.decide(World(nodes=(fresh,), pods=(plugin_pod(),))) == quantity(2)
    advertising = {**fresh, "status": {"allocatable": {device_plugin.RESOURCE: "2"}}}
    assert device_plugin.decide(World(nodes=(advertising,), pods=(plugin_pod(),))) == Decision()
    assert device_plugin.decide(World(nodes=(advertising,))) == quantity(0)
    assert device_plugin.decide(World(nodes=(advertising,), pods=(plugin_pod(conditions=[]),))) == quantity(0)


def test_a_node_without_gpus_advertises_none() -> None:
    assert device_plugin.decide(World(nodes=(node(NodeKind.CPU),), pods=(plugin_pod(),))) == Decision()


def test_the_nodes_profile_decides_over_the_default() -> None:
    assert device_plugin.decide(sliced("sliced")) == quantity(8)
    assert device_plugin.decide(sliced(None, default="sliced")) == quantity(8)
    assert device_plugin.decide(sliced(None)) == quantity(2)
    assert device_plugin.decide(sliced("sliced", text="version: v1")) == quantity(2)


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (sliced("unknown"), "specified config unknown does not exist in ConfigMap ns/plugin"),
        (sliced("sliced", text="version: v2"), "config sliced can't be read"),
        (sliced("sliced", text="{"), "config sliced can't be read"),
    ],
)
def test_a_plugin_with_a_wrong_config_advertises_nothing_and_says_why(world: World, reason: str) -> None:
    decision = device_plugin.decide(world)
    assert decision.changes == ()
    assert "the device plugin on n fails" in decision.complaints[0]
    assert reason in decision.complaints[0]


KAI_CONFIG: dict[str, Any] = {
    "apiVersion": "kai.scheduler/v1",
    "kind": "Config",
    "metadata": {"name": "kai-config", "uid": "u", "generation": 3},
    "spec": {"namespace": "kai", "binder": {"service": {"image": {"repository": "r", "name": "b", "tag": "t"}}}},
}
SHARD = {"metadata": {"name": "default"}}


def kai_world(webhooks: Endpoint | None = None) -> World:
    operator = deployment("kai-operator", "kai")
    return World(deployments=(operator,), kai_configs=(KAI_CONFIG,), scheduling_shards=(SHARD,), webhooks=webhooks)


SERVED = Endpoint("https://127.0.0.1:7", "-----BEGIN CERTIFICATE-----")
_CONFIGURATIONS = {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}


def webhook_configurations(decision: Decision, change: type[Apply] | type[Delete] = Apply) -> set[str]:
    return {name for kind in _CONFIGURATIONS for name in names(decision, change, kind)}


def job(name: str, args: tuple[str, ...] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Job and its running pod."""
    metadata = {"name": name, "namespace": "kai", "uid": "job-uid"}
    made = {"metadata": metadata, "spec": {"template": {"spec": {"containers": [{"name": "c", "args": list(args)}]}}}}
    pod = {
        "metadata": {"name": "pod", "namespace": "kai", "ownerReferences": [{"uid": "job-uid"}]},
        "status": {"phase": "Running"},
    }
    return made, pod


SUCCEED = Merge(Ref("v1", "Pod", "pod", "kai"), {"status": {"phase": "Succeeded"}}, status=True)


def test_the_deployer_applies_the_config_before_its_pod_succeeds() -> None:
    made, pod = job("kai-config-deployer")
    config_map = {
        "metadata": {"name": "kai-config-manifest", "namespace": "kai"},
        "data": {"kai-config.yaml": "kind: Config"},
    }
    decision = kai.decide_jobs(World(jobs=(made,), pods=(pod,), config_maps=(config_map,)))
    assert decision.changes == (Apply({"kind": "Config"}, manager="kai-config-deployer"), SUCCEED)


def test_the_deployer_waits_for_its_manifest() -> None:
    made, pod = job("kai-config-deployer")
    decision = kai.decide_jobs(World(jobs=(made,), pods=(pod,)))
    assert decision.changes == ()
    assert "waits" in decision.complaints[0]


@pytest.mark.parametrize("owns_config", [True, False])
def test_the_cleanup_deletes_what_the_release_owned(owns_config: bool) -> None:
    made, pod = job("post-delete-cleanup", ("kai-config",) if owns_config else ())
    ours = deployment("binder", "kai", labels={"app.kubernetes.io/managed-by": "kai-operator"})
    foreign = deployment("web", "kai")
    decision = kai.decide_jobs(World(jobs=(made,), pods=(pod,), deployments=(ours, foreign)))
    assert names(decision, Delete, "Deployment") == {"binder"}
    assert names(decision, Delete, "Config") == ({"kai-config"} if owns_config else set())
    assert decision.changes[-1] == SUCCEED


def test_a_job_of_another_name_or_without_a_running_pod_is_left_alone() -> None:
    made, pod = job("crd-upgrader")
    assert kai.decide_jobs(World(jobs=(made,), pods=(pod,))) == Decision()
    made, _ = job("post-delete-cleanup")
    assert kai.decide_jobs(World(jobs=(made,))) == Decision()


def test_the_config_brings_the_services_of_kai() -> None:
    decision = kai.decide(kai_world())
    assert names(decision, Apply, "Deployment") == {
        "binder",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
        "admission",
        "kai-scheduler-default",
    }
    binder = applied(decision, "binder", "Deployment")
    assert binder["spec"]["template"]["spec"]["serviceAccountName"] == "binder"
    assert binder["metadata"]["namespace"] == "kai"
    assert binder["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert binder["spec"]["template"]["spec"]["containers"][0]["image"] == "r/b:t"
    [status] = [change for change in decision.changes if isinstance(change, Merge)]
    assert {c["type"]: c["status"] for c in status.patch["status"]["conditions"]} == {
        "Deployed": "True",
        "Available": "False",
        "Ready": "False",
    }


def test_the_config_brings_the_service_account_of_reservation_pods_with_its_pull_secrets() -> None:
    reservation = {"namespace": "kai-resource-reservation", "serviceAccountName": "reserver"}
    spec = {"binder": {"resourceReservation": reservation}, "global": {"additionalImagePullSecrets": ["site"]}}
    world = World(deployments=(deployment("kai-operator", "kai"),), kai_configs=({**KAI_CONFIG, "spec": spec},))
    account = applied(kai.decide(world), "reserver")
    assert account["kind"] == "ServiceAccount"
    assert account["metadata"]["namespace"] == "kai-resource-reservation"
    assert account["imagePullSecrets"] == [{"name": "site"}]
    assert "reserver" not in names(kai.decide(kai_world()), Apply, "ServiceAccount")


def test_each_service_of_kai_has_its_account_before_its_pods_and_its_ports() -> None:
    decision = kai.decide(kai_world())
    kinds = [change.manifest["kind"] for change in decision.changes if isinstance(change, Apply)]
    assert max(i for i, kind in enumerate(kinds) if kind == "ServiceAccount") < kinds.index("Deployment")
    assert names(decision, Apply, "ServiceAccount") == {
        "binder",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
        "admission",
        "scheduler",
    }
    assert names(decision, Apply, "Service") == {
        "binder",
        "podgroup-controller",
        "queue-controller",
        "admission",
        "kai-scheduler-default",
    }
    ports = applied(decision, "queue-controller", "Service")["spec"]["ports"]
    assert [(port["name"], port["port"], port["targetPort"]) for port in ports] == [
        ("webhook", 443, 9443),
        ("metrics", 8080, 8080),
    ]
    scheduler = applied(decision, "kai-scheduler-default", "Deployment")["spec"]["template"]["spec"]
    assert scheduler["serviceAccountName"] == "scheduler"
    assert applied(decision, "kai-scheduler-default", "Service")["spec"]["clusterIP"] == "None"


def test_kai_validates_queues_at_the_address_where_its_webhooks_are_served() -> None:
    decision = kai.decide(kai_world(SERVED))
    assert webhook_configurations(decision) == {
        "kai-queue-validation-v2",
        "kai-podgroup-validation-v2alpha2",
        "mutating-kai-admission",
        "validating-kai-admission",
    }
    configuration = applied(decision, "kai-queue-validation-v2")
    assert configuration["metadata"]["ownerReferences"][0]["uid"] == "u"
    [webhook] = configuration["webhooks"]
    assert (webhook["name"], webhook["failurePolicy"]) == ("queue-validation.kai.scheduler", "Fail")
    assert webhook["clientConfig"]["url"] == (
        "https://127.0.0.1:7/queue-controller/validate-scheduling-run-ai-v2-queue"
    )
    [pods] = applied(decision, "mutating-kai-admission")["webhooks"]
    assert pods["rules"][0]["operations"] == ["CREATE"]
    assert pods["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "kai"]
    assert pods["matchConditions"][0]["expression"] == "object.spec.schedulerName == 'kai-scheduler'"


def test_no_webhook_is_made_that_nobody_serves_and_one_that_is_left_is_deleted() -> None:
    assert webhook_configurations(kai.decide(kai_world())) == set()
    made = kai.decide(kai_world(SERVED))
    left = tuple(c.manifest for c in made.changes if isinstance(c, Apply) and c.manifest["kind"] in _CONFIGURATIONS)
    assert len(left) == 4
    nobody = kai.decide(replace(kai_world(), webhook_configurations=left))
    assert len(webhook_configurations(nobody, Delete)) == 4
    config = {**KAI_CONFIG, "spec": {"namespace": "kai", "queueController": {"service": {"enabled": False}}}}
    off = kai.decide(replace(kai_world(SERVED), kai_configs=(config,), webhook_configurations=left))
    assert webhook_configurations(off, Delete) == {"kai-queue-validation-v2"}
    assert webhook_configurations(off) == set(), "the others are there already"


def test_the_webhooks_of_a_process_that_listens_elsewhere_are_made_anew() -> None:
    made = kai.decide(kai_world(SERVED))
    there = tuple(c.manifest for c in made.changes if isinstance(c, Apply) and c.manifest["kind"] in _CONFIGURATIONS)
    moved = kai.decide(replace(kai_world(Endpoint("https://127.0.0.1:8", "x")), webhook_configurations=there))
    assert len(webhook_configurations(moved)) == 4


def test_the_cleanup_leaves_no_webhook_behind_even_where_the_config_stays() -> None:
    made, pod = job("post-delete-cleanup")
    decided = kai.decide(kai_world(SERVED))
    there = tuple(c.manifest for c in decided.changes if isinstance(c, Apply) and c.manifest["kind"] in _CONFIGURATIONS)
    decision = kai.decide_jobs(World(jobs=(made,), pods=(pod,), webhook_configurations=there))
    assert len(webhook_configurations(decision, Delete)) == 4
    assert decision.changes[-1] == SUCCEED


@pytest.mark.parametrize(
    ("labels", "status", "answers"),
    [
        ({"app.kubernetes.io/managed-by": "kai-operator"}, {**AVAILABLE, "availableReplicas": 1}, True),
        ({"app.kubernetes.io/managed-by": "kai-operator"}, AVAILABLE, False),
        ({"app.kubernetes.io/managed-by": "kai-operator"}, {"availableReplicas": 1}, False),
        ({}, {**AVAILABLE, "availableReplicas": 1}, False),
    ],
    ids=["a pod is available", "scaled to none", "not yet", "somebody else's"],
)
def test_a_webhook_answers_while_its_service_has_an_available_pod(
    labels: dict[str, str], status: dict[str, object], *, answers: bool
) -> None:
    service = deployment("queue-controller", "kai", labels=labels) | {"status": status}
    assert kai.answering(World(deployments=(service,))) == (frozenset({"queue-controller"}) if answers else frozenset())


def test_a_service_that_the_config_switches_off_is_deleted() -> None:
    config = {**KAI_CONFIG, "spec": {"namespace": "kai", "admission": {"service": {"enabled": False}}}}
    ours = deployment("admission", "kai", labels={"app.kubernetes.io/managed-by": "kai-operator"})
    world = World(deployments=(deployment("kai-operator", "kai"), ours), kai_configs=(config,))
    decision = kai.decide(world)
    assert names(decision, Delete, "Deployment") == {"admission"}
    assert "admission" not in names(decision, Apply, "Deployment")
    assert "kai-scheduler-default" not in names(decision, Apply, "Deployment"), "there is no shard"


def test_kai_is_ready_when_every_service_is_available_and_then_rests() -> None:
    first = kai.decide(kai_world())
    made = [{**change.manifest, "status": AVAILABLE} for change in first.changes if isinstance(change, Apply)]
    services = (each for each in made if each["kind"] == "Deployment")
    world = World(
        now="t",
        deployments=(deployment("kai-operator", "kai"), *services),
        services=tuple(each for each in made if each["kind"] == "Service"),
        service_accounts=tuple(each for each in made if each["kind"] == "ServiceAccount"),
        kai_configs=(KAI_CONFIG,),
        scheduling_shards=(SHARD,),
    )
    [status] = kai.decide(world).changes
    assert isinstance(status, Merge)
    assert {c["status"] for c in status.patch["status"]["conditions"]} == {"True"}
    ready = {**KAI_CONFIG, **status.patch}
    rested = replace(world, kai_configs=(ready,))
    assert kai.decide(rested) == Decision()


@pytest.mark.parametrize(
    "world",
    [
        World(kai_configs=(KAI_CONFIG,)),
        World(deployments=(deployment("kai-operator", "kai"),)),
        World(
            deployments=(deployment("kai-operator", "kai"),),
            kai_configs=({**KAI_CONFIG, "metadata": {**KAI_CONFIG["metadata"], "deletionTimestamp": "t"}},),
        ),
    ],
    ids=["no operator", "no config", "config being deleted"],
)
def test_kai_acts_only_when_its_operator_runs_and_has_a_config(world: World) -> None:
    assert kai.decide(world) == Decision()
