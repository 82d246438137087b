"""Each check fires on what it is for, alone or under a cause, and is silent on what comes near to that."""

import copy
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from operations.doctor.check import Category
from operations.doctor.checks import CHECKS
from testbed.stacks import Json, changed, gvirtus, hami_core, jetson, webhook
from tests.support.doctor import GROUP, OLD, RESERVATION, pod, well
from tests.support.hosts.examinations import jetson_examination
from tests.unit.operations.doctor import changes as do
from tests.unit.operations.doctor.cases import CASES
from tests.unit.operations.doctor.changes import both
from tests.unit.operations.doctor.monitoring_cases import metrics
from tests.unit.operations.doctor.worlds import fired, world_of


def _except(*names: str) -> Json:
    """Every namespace but these."""
    return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(names)}]}


def test_every_check_has_a_case() -> None:
    assert sorted(CASES) == sorted(check.code for check in CHECKS)


@pytest.mark.parametrize("stack", [jetson, gvirtus, webhook, metrics], ids=lambda stack: stack.__name__)
def test_no_check_fires_on_a_cluster_that_is_well(stack: Callable[[], Json]) -> None:
    world = world_of(stack)
    world.hosts = {"jetson-1": jetson_examination()}
    diagnosis = world.diagnosis()
    assert [problem.cause.finding.what for problem in diagnosis.problems] == []
    assert diagnosis.not_checked == ()
    assert diagnosis.checked == len(CHECKS)


def test_hosts_that_nobody_asks_are_neither_checked_nor_said_to_be_unseen() -> None:
    diagnosis = well().diagnosis()
    assert diagnosis.not_checked == ()
    assert diagnosis.checked == sum(check.category is not Category.HOSTS for check in CHECKS)


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_check_fires_on_what_it_is_for(code: str) -> None:
    case = CASES[code]
    world = world_of(case.stack)
    case.breaks(world)
    judged = fired(world.diagnosis()).get(code)
    assert judged is not None
    assert judged.finding.what.endswith((".", "?"))
    # Its values are filled in; what is quoted is of kubectl.
    assert "{" not in re.sub("'{.*}'", "", judged.remedy)
    assert OLD not in judged.finding.what


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_check_is_silent_on_what_comes_near_to_it(code: str) -> None:
    case = CASES[code]
    world = world_of(case.almost_on or case.stack)
    usual = fired(world.diagnosis()) if case.stack is hami_core else {}
    case.almost(world)
    diagnosis = world.diagnosis()
    assert set(fired(diagnosis)) - set(usual) == set(case.others.split())
    assert not diagnosis.not_checked


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("is not there, or needs root", "name it in hosts.jetson-1.sudo_password_secret"),
        ("is not there", "See to that on the host"),
    ],
)
def test_a_containerd_that_nobody_saw_is_not_taken_for_one_that_is_well(reason: str, remedy: str) -> None:
    world = world_of(jetson)
    unseen = changed(changed(jetson_examination(), "containerd.unseen", reason), "containerd.merged", None)
    world.hosts = {"jetson-1": unseen}
    [problem] = world.diagnosis().problems
    judged = problem.cause
    assert judged.check.code == "KA1001"
    assert (
        judged.finding.what == "host 'jetson-1' could be looked at in part alone: nothing is known of its containerd."
    )
    assert judged.finding.evidence == (f"{unseen['containerd']['config']}: {reason}",)
    assert remedy in judged.remedy


def test_of_several_reservation_pods_the_newer_one_is_to_go_whatever_its_name() -> None:
    world = world_of(jetson)
    do.reservation(GROUP, creationTimestamp="2025-12-31T00:00:00Z")(world)
    judged = fired(world.diagnosis())["KA0511"]
    assert judged.remedy.endswith("delete pod gpu-reservation-1")


@pytest.mark.parametrize(
    "log",
    [
        "unable to initialize NVML: Insufficient Permissions",
        "unable to initialize NVML: Unknown Error",
        "found 0 devices, 1 was expected",
    ],
)
def test_a_gpu_that_a_reservation_pod_can_not_open_is_told_however_nvml_says_it(log: str) -> None:
    world = world_of(jetson)
    do.silent(log)(world)
    codes = fired(world.diagnosis())
    assert codes["KA0505"].finding.evidence[0] == f"log: {log}"
    assert "KA0506" not in codes


class _Silent(NamedTuple):
    """A reservation pod that does not say its GPU."""

    log: str
    age_seconds: int


_RESTARTED = {"containerStatuses": [{"name": "main", "restartCount": 1, "state": {"running": {}}}]}
_ENDED = {"containerStatuses": [{"name": "main", "state": {"terminated": {"reason": "Error"}}}]}


@pytest.mark.parametrize(
    ("silent", "status", "code"),
    [
        pytest.param(_Silent("ERROR_LIBRARY_NOT_FOUND", 1), {}, "KA0504", id="it has said why"),
        pytest.param(_Silent("panic: something else", 1), _RESTARTED, "KA0508", id="it was started again"),
        pytest.param(_Silent("panic: something else", 1), _ENDED, "KA0508", id="it has ended"),
        pytest.param(_Silent("", 30), {}, "KA0508", id="it takes too long"),
        pytest.param(_Silent("", 5), {}, None, id="it has just been started"),
    ],
)
def test_a_reservation_pod_is_judged_before_kai_deletes_it(silent: _Silent, status: Json, code: str | None) -> None:
    """KAI makes another one every 40 s: what waits a minute for it to settle never says anything."""
    world = world_of(jetson)
    created = (datetime.now(UTC) - timedelta(seconds=silent.age_seconds)).isoformat()
    do.silent(silent.log, creationTimestamp=created)(world)
    do.reservation_status(phase="Running", **status)(world)
    named = {code for code in fired(world.diagnosis()) if code in {"KA0504", "KA0508"}}
    assert named == ({code} if code else set())


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_a_pod_of_another_scheduler_with_a_gpu_that_does_not_start_is_named(resource: str) -> None:
    world = world_of(jetson)
    fails = do.plain_pod("configmap not found")
    fails["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    do.one_more(fails)(world)
    assert list(fired(world.diagnosis())) == ["KA0712"]


def test_a_reservation_pod_that_has_ended_holds_nothing_and_for_nobody() -> None:
    world = world_of(jetson)
    do.reservation("left")(world)
    world.one("pods", "gpu-reservation-2")["status"].update(phase="Failed", reason="Evicted")
    assert fired(world.diagnosis()) == {}


def test_nobody_is_told_to_remove_a_webhook_whose_server_is_only_switched_off() -> None:
    world = world_of(jetson)
    do.answers(ready=False)(world)
    judged = fired(world.diagnosis())["KA0901"]
    assert judged.remedy.endswith("kubectl --namespace kai-scheduler describe deployment admission")
    world.one("deployments", "admission")["spec"]["replicas"] = 0
    judged = fired(world.diagnosis())["KA0901"]
    assert judged.remedy == "kubectl --namespace kai-scheduler scale deployment admission --replicas=1"


_OF_CONFIG_MAPS = {"apiGroups": [""], "resources": ["configmaps"]}
_SOME = {"matchLabels": {"judged": "true"}}


@pytest.mark.parametrize(
    ("rules", "more"),
    [
        (_OF_CONFIG_MAPS, {}),
        ({"apiGroups": ["*"], "resources": ["*/*"]}, {}),
        ({"apiGroups": ["", "apps"], "resources": ["namespaces"]}, {}),
        ({"apiGroups": [""], "resources": ["nodes"]}, {"namespaceSelector": _SOME}),
        ({"apiGroups": ["batch"], "resources": ["jobs"]}, {"namespaceSelector": _except("kube-system")}),
        ({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]}, {}),
        # Whose pods these are does not matter.
        ({"apiGroups": [""], "resources": ["pods"]}, {"namespaceSelector": _SOME, "objectSelector": _SOME}),
    ],
    ids=lambda value: str(value.get("resources", "")) if isinstance(value, dict) else "",
)
def test_a_webhook_of_others_that_judges_what_the_stack_needs_and_does_not_answer_is_named(
    rules: Json, more: Json
) -> None:
    world = world_of(jetson)
    do.webhook_of_others(rules, **more)(world)
    [(code, judged)] = fired(world.diagnosis()).items()
    assert code == "KA0901"
    assert "service judging/judge" in judged.finding.evidence[0]
    assert "whoever installed it removes the configuration judge too" in judged.remedy


@pytest.mark.parametrize(
    ("rules", "more"),
    [
        ({"apiGroups": ["cert-manager.io"], "resources": ["*"]}, {}),
        ({"apiGroups": ["example.com"], "resources": ["deployments"]}, {}),
        (_OF_CONFIG_MAPS, {"namespaceSelector": _SOME}),
        (
            _OF_CONFIG_MAPS,
            {"namespaceSelector": _except("kai-scheduler", "gpu-operator", "kai-anywhere", RESERVATION)},
        ),
        (_OF_CONFIG_MAPS, {"objectSelector": _SOME}),
        (_OF_CONFIG_MAPS, {"matchConditions": [{"name": "some", "expression": "false"}]}),
        (_OF_CONFIG_MAPS, {"failurePolicy": "Ignore"}),
        ({"apiGroups": [""], "resources": ["pods/exec"], "operations": ["CONNECT"]}, {}),
    ],
    ids=[
        "a group",
        "a kind of that name",
        "some namespaces",
        "not ours",
        "some objects",
        "sometimes",
        "Ignore",
        "exec",
    ],
)
def test_a_webhook_of_others_that_judges_nothing_of_ours_is_no_matter(rules: Json, more: Json) -> None:
    world = world_of(jetson)
    do.webhook_of_others(rules, **more)(world)
    assert fired(world.diagnosis()) == {}


def test_a_removal_that_was_killed_is_to_come_to_its_end_and_its_revision_stays() -> None:
    world = world_of(jetson)
    do.release("uninstalling")(world)
    owned = {"ownerReferences": [{"kind": "Job", "name": "post-delete-cleanup"}], "namespace": "kai-scheduler"}
    waits = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    hook = do.plain_pod("")
    hook["metadata"].update(owned, name="post-delete-cleanup-x")
    del hook["spec"]["nodeName"]
    hook["status"] = {"phase": "Pending", "conditions": [waits]}
    do.one_more(hook)(world)
    judged = fired(world.diagnosis())["KA0101"]
    assert judged.remedy.endswith("kai-anywhere down --stack jetson")
    assert "delete secret" not in judged.remedy
    assert judged.finding.evidence[1:] == ("pod post-delete-cleanup-x: 0/3 nodes are available",)


def test_of_a_kai_that_was_removed_and_whose_config_was_left_the_remedy_is_no_installation_alone() -> None:
    world = world_of(jetson)
    do.clear("deployments")(world)
    assert "helm upgrade kai-scheduler" in fired(world.diagnosis())["KA0202"].remedy
    world.lists["kai revisions"].clear()
    judged = fired(world.diagnosis())["KA0202"]
    assert "kai-anywhere rollback --stack jetson removes what this stack left" in judged.remedy
    assert "helm upgrade" not in judged.remedy


def test_a_namespace_that_does_not_go_has_what_holds_it_up_in_its_evidence() -> None:
    world = world_of(jetson)
    do.terminating("kai-resource-reservation")(world)
    held = "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"
    conditions = [{"type": "NamespaceFinalizersRemaining", "status": "True", "message": held}]
    world.one("namespaces", "kai-resource-reservation")["status"]["conditions"] = conditions
    judged = fired(world.diagnosis())["KA0103"]
    assert judged.finding.evidence[1:] == (held,)


def test_nobody_is_told_to_repair_a_shard_which_would_come_back_without_its_placement() -> None:
    world = world_of(jetson)
    world.lists["shards"].clear()
    [problem] = world.diagnosis().problems
    assert [result.check.code for result in problem.all] == ["KA0211", "KA0105"]
    assert all(
        "helm upgrade kai-scheduler" in result.remedy and "repair" not in result.remedy for result in problem.all
    )


def test_the_log_to_read_is_that_of_the_plugin_on_the_node_wherever_it_was_installed() -> None:
    world = world_of(jetson)
    world.one("daemonsets", "nvidia-device-plugin-daemonset")["metadata"]["namespace"] = "kube-system"
    plugin = world.one("pods", "plugin-1")
    plugin["metadata"]["namespace"], plugin["status"] = "kube-system", {"phase": "Running"}
    judged = fired(world.diagnosis())["KA0306"]
    assert judged.remedy == "Read its log: kubectl --namespace kube-system logs plugin-1 --all-containers"


@pytest.mark.parametrize(
    ("taints", "tolerations", "named"),
    [
        pytest.param(["dedicated=robots:NoSchedule"], [], ["dedicated=robots:NoSchedule"], id="somebody's"),
        pytest.param(["dedicated=robots:NoSchedule"], [{"key": "dedicated", "operator": "Exists"}], [], id="tolerated"),
        pytest.param(["nvidia.com/gpu=present:NoSchedule"], [], [], id="tolerated as usual"),
        pytest.param(["node.kubernetes.io/unschedulable:NoSchedule"], [], [], id="of a cordoned node"),
        pytest.param(["slow=disk:PreferNoSchedule"], [], [], id="one that keeps nothing off"),
    ],
)
def test_a_taint_that_keeps_the_device_plugin_off_a_node_is_named_with_its_ways_out(
    taints: list[str], tolerations: list[Json], named: list[str]
) -> None:
    world = world_of(jetson)
    do.remove("pods", "plugin-1")(world)
    world.one("nodes", "jetson-1")["spec"] = {"taints": [_taint(taint) for taint in taints]}
    usual = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    template = world.one("daemonsets", "nvidia-device-plugin-daemonset")["spec"]["template"]
    template["spec"]["tolerations"] = [usual, *tolerations]
    judged = fired(world.diagnosis())["KA0306"]
    lines = [line for line in judged.finding.evidence if line.startswith("taint ")]
    assert lines == [f"taint {taint}, which the DaemonSet does not tolerate" for taint in named]
    away = f"Take the taint away: kubectl taint node jetson-1 {' '.join(f'{taint}-' for taint in named)}. Or have"
    assert judged.remedy.startswith(away if named else "See why it has no pod there: ")
    setting = "cluster.tolerated_taints: [dedicated=robots:NoSchedule], then pulumi up."
    assert judged.remedy.endswith(setting) == bool(named)
    world.settings = changed(jetson(), "cluster.tolerated_taints", ["site:NoExecute"])
    both = "cluster.tolerated_taints: [site:NoExecute, dedicated=robots:NoSchedule], then pulumi up."
    assert fired(world.diagnosis())["KA0306"].remedy.endswith(both) == bool(named)
    world.settings = changed(jetson(), "gpu_operator.install", value=False)
    if named:
        remedy = fired(world.diagnosis())["KA0306"].remedy
        assert "in spec.daemonsets.tolerations: kubectl edit clusterpolicies" in remedy
        assert "cluster.tolerated_taints" not in remedy, "the operator is somebody else's"


def test_a_device_plugin_that_a_quota_refuses_is_told_in_its_words_and_nobody_sent_to_a_log() -> None:
    world = world_of(jetson)
    do.remove("pods", "plugin-1")(world)
    name, refused = "nvidia-device-plugin-daemonset", "pods is forbidden: exceeded quota: team"
    world.event("gpu-operator", name, "FailedCreate", refused, "DaemonSet")
    judged = fired(world.diagnosis())["KA0306"]
    assert judged.finding.evidence[1:] == (f"FailedCreate: {refused}",)
    assert judged.remedy == (f"See why it has no pod there: kubectl --namespace gpu-operator describe daemonset {name}")


def test_a_deployment_whose_pods_are_refused_has_the_refusal_in_its_evidence() -> None:
    world = world_of(jetson)
    refused = {"type": "ReplicaFailure", "status": "True", "message": "pods is forbidden: exceeded quota: team"}
    world.one("deployments", "binder")["status"] = {"replicas": 0, "conditions": [refused]}
    judged = fired(world.diagnosis())["KA0205"]
    assert "condition ReplicaFailure=True: pods is forbidden: exceeded quota: team" in judged.finding.evidence


def _taint(text: str) -> dict[str, str]:
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


@pytest.mark.parametrize("label", ["0", "99"])
def test_a_memory_of_which_nothing_is_shared_is_found(label: str) -> None:
    world = world_of(jetson)
    do.label("nvidia.com/gpu.memory", label)(world)
    judged = fired(world.diagnosis())["KA0404"]
    assert judged.finding.what.endswith(f"the label nvidia.com/gpu.memory is '{label}', of which KAI shares nothing.")


@pytest.mark.parametrize("label", ["0", "-1", "two"])
def test_a_count_of_no_gpus_beside_a_gpu_is_not_taken_for_time_slicing(label: str) -> None:
    world = world_of(jetson)
    do.label("nvidia.com/gpu.count", label)(world)
    [problem] = world.diagnosis().problems
    assert (problem.cause.check.code, [symptom.check.code for symptom in problem.symptoms]) == ("KA0411", ["KA0406"])
    assert problem.symptoms[0].finding.what == (
        f"node 'jetson-1': the label nvidia.com/gpu.count is '{label}', and it advertises 1."
    )


def test_more_gpus_than_any_node_has_are_no_time_slicing_where_the_label_says_as_many() -> None:
    world = world_of(jetson)
    both(do.gpus("200"), do.label("nvidia.com/gpu.count", "200"))(world)
    assert "KA0407" not in fired(world.diagnosis())


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"])
def test_a_node_that_advertises_slices_alone_advertises_its_gpu(resource: str) -> None:
    world = world_of(jetson)
    do.allocatable("jetson-1", **{"nvidia.com/gpu": "0", resource: "7"})(world)
    assert "KA0403" not in fired(world.diagnosis())


def test_the_label_that_counts_gpus_alone_tells_of_one_that_is_not_advertised() -> None:
    """As `status` says it: its driver or device plugin is not up."""
    world = world_of(jetson)
    world.label("cpu-1", "nvidia.com/gpu.count", "2")
    judged = fired(world.diagnosis())["KA0403"]
    assert judged.finding.subject.name == "cpu-1"
    assert judged.finding.evidence[1] == "labels nvidia.com/gpu.present=missing, nvidia.com/gpu.count=2"


@pytest.mark.parametrize("label", ["nvidia.com/gpu.present", "nvidia.com/gpu.count"])
def test_a_frontend_of_remote_gpus_has_no_gpu_whatever_is_labelled(label: str) -> None:
    """As for `status`."""
    world = world_of(jetson)
    do.allocatable("cpu-1", **{"nvidia.com/gpu": "8"})(world)
    world.label("cpu-1", "gvirtus.io/frontend.allowed", "true")
    world.label("cpu-1", label, {"nvidia.com/gpu.present": "true"}.get(label, "2"))
    assert fired(world.diagnosis()) == {}


def test_a_pod_with_several_gpus_is_looked_for_in_each_of_its_groups() -> None:
    world = world_of(jetson)
    labels = {f"runai-gpu-group/{group}": group for group in (GROUP, "nobody")}
    world.lists["pods"].append(pod("two", node="jetson-1", labels=labels))
    judged = fired(world.diagnosis())["KA0515"]
    assert (judged.finding.subject.name, len(judged.finding.evidence)) == ("two", 1)
    assert judged.finding.evidence[0].startswith("label runai-gpu-group=nobody:")
    assert {"group/nobody", f"group/{GROUP}"} <= judged.finding.about


def test_a_pod_with_scheduling_gates_does_not_wait_for_kai() -> None:
    """It waits for whoever set the gate, such as Kueue: no scheduler looks at it."""
    world = well()
    do.waits("Scheduling is blocked due to non-empty scheduling gates", queue="gone")(world)
    world.one("pods", "waits")["status"]["conditions"][0]["reason"] = "SchedulingGated"
    assert fired(world.diagnosis()) == {}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_a_device_plugin_that_is_a_program_of_the_host_is_not_missing(resource: str) -> None:
    world = world_of(jetson)
    for node in world.lists["nodes"]:
        if gpus := node["status"]["allocatable"].pop("nvidia.com/gpu", None):
            node["status"]["allocatable"][resource] = gpus
    do.remove("daemonsets", "nvidia-device-plugin-daemonset")(world)
    assert "KA0305" not in fired(world.diagnosis())


def test_a_limit_that_a_queue_does_not_say_is_no_limit_of_none() -> None:
    """KAI takes what is missing for 0 (docs/queues of v0.17.0): pods that request cores or memory never run there."""
    world = well()
    do.queue_of("mine", gpu={"quota": 2})(world)
    closed = fired(world.diagnosis())["KA0607"].finding
    assert "'mine' has a limit of 0 for gpu, cpu, memory:" in closed.what
    assert "Queue mine: spec.resources.cpu.limit is missing, which is 0" in closed.evidence


def test_a_circle_of_queues_is_one_finding_and_a_queue_below_it_none() -> None:
    world = well()
    for name, parent in {"leaf": "x", "x": "y", "y": "z", "z": "x", "itself": "itself"}.items():
        do.queue(name, parent)(world)
    problems = world.diagnosis().problems
    circles = {problem.cause.finding.subject.name: problem.cause.finding for problem in problems}
    assert {problem.cause.check.code for problem in problems} == {"KA0609"}
    assert circles.keys() == {"itself", "x"}
    assert circles["x"].what == "queue 'x' is below itself: the parents of x, y, z lead in a circle."
    assert "Queue z: spec.parentQueue=x" in circles["x"].evidence


def test_of_many_queues_evidence_names_ten() -> None:
    """Their parent was deleted: each is a finding, and none lists all the others."""
    world = well()
    for number in range(300):
        do.queue(f"team-{number:03}", "departed")(world)
    orphans = [problem.cause.finding for problem in world.diagnosis().problems]
    assert len(orphans) == 300
    assert max(len(line) for orphan in orphans for line in orphan.evidence) < 200


def test_a_config_of_kai_that_somebody_edited_is_put_back_by_the_command_that_is_given() -> None:
    world = well()
    whole = copy.deepcopy(do.config(world))
    do.sharing("Disabled")(world)
    do.discovered("x86-1", "40000")(world)
    del do.config(world)["binder"]["resourceReservation"]["runtimeClassName"]
    codes = fired(world.diagnosis())
    for code in ("KA0213", "KA0516"):
        command = re.search(
            r"kubectl patch config\.kai\.scheduler kai-config --type merge --patch '(.*)'", codes[code].remedy
        )
        assert command
        [[section, fields]] = json.loads(command[1])["spec"].items()
        _merge(do.config(world)[section], fields)
    assert do.config(world) == whole
    assert not {"KA0213", "KA0516"} & fired(world.diagnosis()).keys()


def _merge(into: Json, fields: Json) -> None:
    for name, value in fields.items():
        if isinstance(value, dict):
            _merge(into[name], value)
        else:
            into[name] = value


def test_a_node_without_the_runtime_of_the_class_is_found_before_any_pod_fails_there() -> None:
    world = well()
    handlers = [{"name": ""}, {"name": "runc"}]
    for name in ("jetson-1", "cpu-1"):
        world.one("nodes", name)["status"]["runtimeHandlers"] = handlers
    [judged] = fired(world.diagnosis()).values()
    assert judged.check.code == "KA0709"
    assert judged.finding.what == (
        "node 'jetson-1' starts no pod with RuntimeClass 'nvidia': its container runtime has no 'nvidia'."
    )
    assert judged.finding.evidence == ("Node jetson-1: status.runtimeHandlers: runc",)
    world.one("runtimeclasses", "nvidia")["handler"] = "runc"
    assert fired(world.diagnosis()) == {}, "somebody's class may name any runtime"
    world.one("runtimeclasses", "nvidia")["handler"] = "nvidia"
    handlers.append({"name": "nvidia"})
    assert fired(world.diagnosis()) == {}
