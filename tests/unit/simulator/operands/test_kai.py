"""KAI's hooks and its operator."""

from dataclasses import replace
from typing import Any

import pytest

from simulator.operands import kai
from simulator.operands.world import (
    Apply,
    Decision,
    Delete,
    Endpoint,
    Merge,
    Ref,
    World,
)
from tests.unit.simulator.operands.objects import AVAILABLE, applied, deployment, names

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
    services = (manifest for manifest in made if manifest["kind"] == "Deployment")
    world = World(
        now="t",
        deployments=(deployment("kai-operator", "kai"), *services),
        services=tuple(manifest for manifest in made if manifest["kind"] == "Service"),
        service_accounts=tuple(manifest for manifest in made if manifest["kind"] == "ServiceAccount"),
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
