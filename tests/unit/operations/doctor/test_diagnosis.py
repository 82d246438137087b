"""Causes before what follows from them, suppression, what could not be seen, and exit statuses."""

import pytest

from manifests.gpu_operator import time_slicing_config
from manifests.node_labels import PLATFORM
from operations.doctor.check import SUPPRESS, Category, Finding, Severity, Subject
from operations.doctor.checks import CHECKS
from operations.doctor.diagnosis import Choice, Diagnosis, Judged
from operations.doctor.facts import Facts, Source
from operations.doctor.report import exit_status, report
from operations.exit_status import ExitStatus
from testbed.stacks import changed, jetson, parse
from tests.support.doctor import GROUP, PATHS, World, fraction, pod_group, well
from tests.unit.operations.doctor.changes import nothing, silent
from tests.unit.operations.doctor.worlds import world_of


def _tree(diagnosis: Diagnosis) -> dict[str, list[str]]:
    return {
        problem.cause.check.code: sorted({symptom.check.code for symptom in problem.symptoms})
        for problem in diagnosis.problems
    }


def _with_waiting_pods(count: int = 3, message: str = "") -> World:
    world = well()
    for number in range(count):
        said = [{"type": "PodScheduled", "status": "False", "message": message}] if message else []
        world.lists["pods"].append(fraction(f"waits-{number}", conditions=said))
        world.lists["podgroups"].append(pod_group(f"pg-waits-{number}"))
    return world


def test_a_scheduler_that_is_off_explains_every_pod_that_waits() -> None:
    world = _with_waiting_pods()
    world.scale("kai-scheduler-default")
    diagnosis = world.diagnosis()
    assert _tree(diagnosis) == {"KA0204": ["KA0706"]}
    [problem] = diagnosis.problems
    assert len(problem.symptoms) == 3
    assert problem.cause.finding.what == (
        "KAI's scheduler is switched off: Deployment kai-scheduler/kai-scheduler-default is scaled to 0."
    )
    assert problem.cause.remedy == (
        "kubectl --namespace kai-scheduler scale deployment kai-scheduler-default --replicas=1"
    )


def test_a_remedy_changes_the_stack_that_was_looked_at_and_no_other() -> None:
    """`repair` without --stack is of stack jetson, whose cluster may be another one."""
    world = well()
    world.label("jetson-1", PLATFORM, None)
    [problem] = world.diagnosis().problems
    assert problem.cause.remedy == "Put them back: `kai-anywhere repair --stack jetson`."
    assert Judged(problem.cause.check, problem.cause.finding, Facts().names).remedy.endswith("repair --stack STACK`.")


def test_a_remedy_names_the_namespaces_of_this_cluster() -> None:
    """Somebody else's GPU Operator and KAI may be anywhere."""
    world = well()
    for deployment in world.lists["deployments"]:
        if deployment["metadata"]["name"] == "gpu-operator":
            deployment["metadata"]["namespace"] = "nvidia"
    spec = world.one("configs", "kai-config")["spec"]
    spec |= {"namespace": "kai", "global": {"schedulerName": "kai", "nodePoolLabelKey": "pool"}}
    spec["binder"]["resourceReservation"]["namespace"] = "reserved"
    names = world.facts().names
    remedies = [check.remedy_of(Finding(Subject("Node", "n"), ""), names) for check in CHECKS]
    for text in ("nvidia get pods", "--namespace kai logs", "--namespace reserved get pods", "label node n pool-"):
        assert any(text in remedy for remedy in remedies)
    for usual in ("--namespace gpu-operator", "--namespace kai-scheduler", "kai-resource-reservation", "node-pool-"):
        assert not any(usual in remedy for remedy in remedies)


def test_a_cause_of_one_node_explains_nothing_of_another() -> None:
    world = well()
    world.one("nodes", "jetson-1")["status"]["allocatable"] = {}
    world.one("nodes", "cpu-1")["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "gone"}]
    assert _tree(world.diagnosis()) == {"KA0401": [], "KA0403": []}


def test_causes_of_causes_are_one_problem() -> None:
    """The profile keeps the plugin from starting, which keeps the node from having GPUs, which keeps pods waiting."""
    world = _with_waiting_pods(1, "jetson-1 has no GPU")
    world.label("jetson-1", "nvidia.com/device-plugin.config", "unknown")
    world.remove("pods", "plugin-1")
    world.one("nodes", "jetson-1")["status"]["allocatable"] = {}
    assert _tree(world.diagnosis()) == {"KA0310": ["KA0306", "KA0403", "KA0705"]}


def test_of_a_stack_that_is_not_installed_nobody_is_told_to_put_a_release_back() -> None:
    world = world_of(jetson)
    nothing(world)
    diagnosis = world.diagnosis()
    tree = _tree(diagnosis)
    assert {"KA0201", "KA0301", "KA0302", "KA0303"} <= set(tree["KA0104"])
    assert diagnosis.problems[0].cause.check.code == "KA0104"
    assert not any("helm upgrade" in problem.cause.remedy for problem in diagnosis.problems)
    assert diagnosis.count(Severity.ERROR), "who waits until nothing fails must not be told that it is there"


def test_labels_that_a_node_lost_are_put_back_and_the_node_is_not_asked_for_in_the_stack_again() -> None:
    """A board that was flashed anew joins with its old name, and without labels."""
    world = well()
    labels = world.one("nodes", "jetson-1")["metadata"]["labels"]
    del labels["nvidia.com/gpu.memory"], labels["nvidia.com/gpu.count"]
    diagnosis = world.diagnosis()
    assert _tree(diagnosis) == {"KA0411": ["KA0404", "KA0406"]}
    assert diagnosis.problems[0].cause.remedy == "Put them back: `kai-anywhere repair --stack jetson`."

    # What the stack does not know of the node, nothing puts back.
    world.settings = changed(
        world.settings or {}, "platform.tegra_nodes", {"jetson-2": {"gpu_memory_mib": 122880, "gpu_count": 1}}
    )
    codes = _tree(world.diagnosis()).keys()
    assert "KA0411" not in codes
    assert {"KA0404", "KA0406"} <= codes


def test_a_profile_label_that_somebody_changed_is_put_back_and_not_removed() -> None:
    world = well()
    world.settings = changed(world.settings or {}, "node_profiles", {"mine": {"sharing": "kai", "nodes": ["jetson-1"]}})
    world.label("jetson-1", "nvidia.com/device-plugin.config", "unknown")
    assert _tree(world.diagnosis())["KA0411"] == ["KA0310"]


def test_profiles_that_somebody_deleted_are_put_back_and_no_label_is_removed() -> None:
    world = well()
    world.settings = changed(world.settings or {}, "node_profiles", {"mine": {"sharing": "kai", "nodes": ["jetson-1"]}})
    world.label("jetson-1", "nvidia.com/device-plugin.config", "mine")
    profiles = time_slicing_config(parse(world.settings))
    assert profiles is not None
    policy = world.lists["clusterpolicies"][0]
    policy["spec"]["devicePlugin"]["config"]["name"] = profiles["metadata"]["name"]
    world.lists["configmaps"] = []
    world.gone.add(f"ConfigMap/gpu-operator/{profiles['metadata']['name']}")
    remedies = {problem.cause.check.code: problem.cause.remedy for problem in world.diagnosis().problems}
    assert remedies["KA0310"] == "Put that ConfigMap back: `kai-anywhere repair --stack jetson`."
    assert "kai-anywhere repair" in remedies["KA0105"]


def test_a_queue_of_the_stack_that_somebody_deleted_is_put_back_and_not_asked_for() -> None:
    world = well()
    queues = [queue for queue in world.lists["queues"] if queue["metadata"]["name"] not in {"edge", "robots"}]
    child = {"metadata": {"name": "theirs"}, "spec": {"parentQueue": "edge"}}
    world.lists["queues"] = [*queues, child]
    for name in ("robots", "nobodys"):
        world.lists["pods"].append(fraction(name, labels={"kai.scheduler/queue": name}))
    world.gone |= {"Queue/edge", "Queue/robots"}
    order = {
        (result.check.code, result.finding.subject.name): result.remedy
        for problem in world.diagnosis().problems
        for result in problem.all
    }
    back = "Put that queue back: `kai-anywhere repair --stack jetson`."
    assert order["KA0603", "robots"] == order["KA0602", "theirs"] == back
    assert order["KA0603", "nobodys"].startswith("Correct the label kai.scheduler/queue of the workload, or add")


def test_a_code_is_suppressed_by_option_and_by_annotation_and_counted() -> None:
    world = well()
    world.scale("binder")
    world.scale("admission")
    world.one("deployments", "admission")["metadata"]["annotations"] = {SUPPRESS: "KA0101, KA0209"}
    diagnosis = world.diagnosis(Choice(suppress=frozenset({"KA0205"})))
    assert diagnosis.problems == ()
    assert sorted(problem.cause.check.code for problem in diagnosis.suppressed) == ["KA0205", "KA0209"]
    assert exit_status(diagnosis, Severity.ERROR) is ExitStatus.WELL


def test_the_annotation_of_one_object_does_not_hide_another() -> None:
    world = well()
    world.scale("binder")
    world.scale("admission")
    world.one("deployments", "admission")["metadata"]["annotations"] = {SUPPRESS: "KA0205"}
    assert sorted(_tree(world.diagnosis())) == ["KA0205", "KA0209"]


def test_categories_are_chosen_and_left_out() -> None:
    world = well()
    world.scale("binder")
    world.one("nodes", "jetson-1")["status"]["allocatable"] = {}
    only = world.diagnosis(Choice(only=frozenset({Category.NODES})))
    assert list(_tree(only)) == ["KA0403"]
    rest = world.diagnosis(Choice(skip=frozenset({Category.NODES})))
    assert list(_tree(rest)) == ["KA0205"]


@pytest.mark.parametrize(
    ("of", "source", "blind"),
    [
        ("deployments", Source.DEPLOYMENTS, "KA0202"),
        ("pods", Source.PODS, "KA0706"),
        ("queues", Source.QUEUES, "KA0601"),
    ],
)
def test_what_may_not_be_read_is_named_and_the_rest_is_checked(of: str, source: Source, blind: str) -> None:
    world = well()
    world.refused[PATHS[of]] = 403
    diagnosis = world.diagnosis()
    assert diagnosis.problems == (), "what is not seen is not wrong"
    unseen = {gap.check.code: gap.unseen for gap in diagnosis.not_checked}
    assert "refuses GET" in next(gap.why for gap in unseen[blind] if gap.what == source)
    assert diagnosis.checked > 30
    assert exit_status(diagnosis, Severity.ERROR) is ExitStatus.WARNINGS


def test_a_user_who_may_read_nothing_is_told_so() -> None:
    world = well()
    world.refused = dict.fromkeys(PATHS.values(), 403)
    diagnosis = world.diagnosis()
    assert diagnosis.problems == ()
    assert len(diagnosis.not_checked) > 80


@pytest.mark.parametrize(
    ("deployment", "fail_on", "status"),
    [
        ("binder", Severity.ERROR, ExitStatus.FAILED),
        ("podgroup-controller", Severity.ERROR, ExitStatus.WARNINGS),
        ("podgroup-controller", Severity.WARNING, ExitStatus.FAILED),
        (None, Severity.WARNING, ExitStatus.WELL),
    ],
)
def test_the_exit_status_follows_the_worst_problem(
    deployment: str | None, fail_on: Severity, status: ExitStatus
) -> None:
    world = well()
    if deployment:
        world.scale(deployment)
    assert exit_status(world.diagnosis(), fail_on) is status


def test_the_report_has_what_a_program_needs() -> None:
    world = _with_waiting_pods(1)
    world.scale("kai-scheduler-default")
    facts = world.facts()
    diagnosis = world.diagnosis()
    said = report(facts, diagnosis, server="https://x", context="c", status=ExitStatus.FAILED).model_dump(mode="json")
    assert (said["status"], said["errors"], said["warnings"], said["version"]) == (3, 1, 0, 1)
    [problem] = said["problems"]
    assert problem["object"] == {"kind": "Deployment", "namespace": "kai-scheduler", "name": "kai-scheduler-default"}
    assert problem["documentation"] == "docs/troubleshooting.md#ka0204"
    assert problem["evidence"] == ["Deployment kai-scheduler/kai-scheduler-default: spec.replicas=0"]
    assert [symptom["code"] for symptom in problem["symptoms"]] == ["KA0706"]
    assert "symptoms" not in problem["symptoms"][0]


def test_a_cluster_without_a_stack_is_looked_at_too() -> None:
    world = well()
    world.settings = None
    assert _tree(world.diagnosis()) == {}
    world.scale("binder")
    world.label("jetson-1", "kai.scheduler/node-pool", "by-hand")
    assert sorted(_tree(world.diagnosis())) == ["KA0205", "KA0408"]


@pytest.mark.parametrize("young", [True, False])
def test_what_is_young_may_still_become_what_it_should_be(young: bool) -> None:
    world = well()
    created = "2100-01-01T00:00:00Z" if young else "2020-01-01T00:00:00Z"
    world.lists["pods"].append(fraction("new", created=created))
    world.lists["podgroups"].append(pod_group("pg-new"))
    assert list(_tree(world.diagnosis())) == ([] if young else ["KA0706"])


def test_a_reservation_pod_that_a_bind_request_of_kai_0_18_asks_for_is_not_stale() -> None:
    world = well()
    world.remove("pods", "arm")
    assert list(_tree(world.diagnosis())) == ["KA0510"]
    spec = {"podName": "arm", "selectedNode": "jetson-1", "selectedFractionalGpuGroups": [{"id": GROUP}]}
    world.lists["bindrequests"] = [{"metadata": {"name": "arm", "namespace": "default"}, "spec": spec}]
    assert _tree(world.diagnosis()) == {}


@pytest.mark.parametrize("words", ["Driver Not Loaded", "Insufficient Permissions"])
def test_a_device_file_that_is_missing_or_closed_to_a_reservation_pod_is_one_finding(words: str) -> None:
    world = well()
    silent(f"unable to initialize NVML: {words}")(world)
    assert list(_tree(world.diagnosis())) == ["KA0505"]
