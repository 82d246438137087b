"""`doctor pod`: one sentence, from the cause if there is one, else from KAI's word or its arithmetic."""

from copy import deepcopy

import pytest

from operations.doctor.diagnosis import diagnose
from operations.doctor.pod import PodVerdict, explain, find_pod
from operations.errors import OperationError
from testbed.stacks import Json
from tests.support.doctor import PATHS, RESERVATION, World, fraction, pod, pod_group, well
from tests.unit.operations.doctor import changes as do


def _why(world: World, name: str) -> PodVerdict:
    facts = world.facts()
    return explain(facts, diagnose(facts), find_pod(facts, name, "default"))


def _waiting(world: World, message: str = "", **more: str) -> None:
    said = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    world.lists["pods"].append(fraction("waits", conditions=said if message else [], **more))
    world.lists["podgroups"].append(pod_group("pg-waits"))


def test_a_pod_that_runs_is_well() -> None:
    verdict = _why(well(), "arm")
    assert (verdict.runs, verdict.code) == (True, None)
    assert verdict.sentence == "Pod default/arm runs on node jetson-1."


def test_a_pod_that_runs_is_told_its_gpu_groups_and_no_other_label() -> None:
    world = well()
    groups = {f"runai-gpu-group/{group}": group for group in ("g2", "g1")}
    world.lists["pods"].append(pod("two", node="jetson-1", labels=groups | {"runai-gpu-group-of": "somebody"}))
    for group in groups.values():
        holder = deepcopy(world.one("pods", "gpu-reservation-1"))
        holder["metadata"]["name"] = f"gpu-reservation-{group}"
        holder["metadata"]["labels"]["runai-gpu-group"] = group
        world.lists["pods"].append(holder)
    assert _why(world, "two").evidence == ("GPU group g1", "GPU group g2")


def test_a_pod_that_runs_without_the_share_it_asks_for_is_told_so() -> None:
    world = well()
    world.lists["pods"].append(
        pod("plain", node="jetson-1", scheduler="default-scheduler", annotations={"gpu-memory": "5000"})
    )
    verdict = _why(world, "plain")
    assert verdict.sentence == (
        "Pod default/plain runs on node jetson-1, but it asks for a part of a GPU, and its scheduler is "
        "'default-scheduler'."
    )
    assert (verdict.runs, verdict.code) == (False, "KA0701")
    assert verdict.evidence == ("Pod default/plain: spec.schedulerName=default-scheduler, gpu-memory=5000",)
    assert verdict.remedy.startswith("Set spec.schedulerName: kai-scheduler")
    other = _why(world, "arm")
    assert (other.runs, other.sentence) == (True, "Pod default/arm runs on node jetson-1.")


def test_a_pod_that_runs_on_a_gpu_which_nobody_holds_any_more_is_told_so() -> None:
    """As where the kubelet has evicted the reservation pod, and what shares the GPU has run on."""
    world = well()
    do.reservation_status(phase="Failed", reason="Evicted", message="memory is low")(world)
    world.lists["pods"].append(pod("plain", node="jetson-1"))
    verdict = _why(world, "arm")
    assert verdict.sentence == (
        "Pod default/arm runs on node jetson-1, but reservation pod gpu-reservation-1 on node 'jetson-1' has ended, "
        "and pods run on the GPU that it held."
    )
    assert (verdict.runs, verdict.code) == (False, "KA0519")
    assert verdict.remedy.startswith("Have the pods that share the GPU made again")
    assert _why(world, "plain").runs


def test_who_may_read_pods_alone_is_told_that_kubernetes_own_scheduler_has_the_pod() -> None:
    """What KAI's scheduler is called, only its Config says; another name may be KAI's."""
    world = well()
    for scheduler in ("default-scheduler", "their-kai"):
        world.lists["pods"].append(
            pod(scheduler, node="jetson-1", scheduler=scheduler, annotations={"gpu-memory": "5000"})
        )
    world.lists["pods"].append(pod("whole", node="jetson-1", scheduler="default-scheduler"))
    world.refused[PATHS["configs"]] = 403
    verdict = _why(world, "default-scheduler")
    assert (verdict.runs, verdict.code) == (False, "KA0701")
    assert verdict.sentence.endswith(", but it asks for a part of a GPU, and its scheduler is 'default-scheduler'.")
    for other in ("their-kai", "whole", "arm"):
        assert _why(world, other).runs


@pytest.mark.parametrize("marked", [True, False])
def test_a_pod_on_a_host_that_is_off_does_not_run_whatever_its_kubelet_said_last(marked: bool) -> None:
    """Kubernetes marks such pods as not ready some time later; their containers stay as they were."""
    world = well()
    do.node_condition("Ready", "Unknown", "Kubelet stopped posting node status.")(world)
    world.one("pods", "arm")["status"] |= {
        "conditions": [{"type": "Ready", "status": "False" if marked else "True"}],
        "containerStatuses": [{"name": "main", "ready": True, "state": {"running": {}}}],
    }
    verdict = _why(world, "arm")
    assert verdict.sentence == "Pod default/arm is Running and not ready because node 'jetson-1' is not ready."
    assert (verdict.runs, verdict.code) == (False, "KA0401")
    assert verdict.evidence[0] == "condition Ready=Unknown: Kubelet stopped posting node status."


def test_a_pod_waits_because_the_scheduler_is_off() -> None:
    world = well()
    _waiting(world)
    world.scale("kai-scheduler-default")
    verdict = _why(world, "waits")
    assert verdict.sentence == (
        "Pod default/waits is Pending because KAI's scheduler is switched off: Deployment "
        "kai-scheduler/kai-scheduler-default is scaled to 0."
    )
    assert (verdict.runs, verdict.code) == (False, "KA0204")
    assert verdict.remedy.startswith("kubectl --namespace kai-scheduler scale")


def test_a_pod_that_does_not_fit_is_told_what_is_left_where() -> None:
    world = well()
    world.lists["pods"] += [fraction(f"arm-{number}", node="jetson-1") for number in range(3)]
    _waiting(world, "no nodes with enough resources were found")
    verdict = _why(world, "waits")
    assert verdict.sentence.startswith("Pod default/waits is Pending because it asks for 30720 MiB; jetson-1 has")
    assert any("left of 122800 MiB that KAI shares of each GPU" in line for line in verdict.evidence)
    assert any("no nodes with enough resources" in line for line in verdict.evidence)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
            "Node jetson-1: cordoned, 92080 MiB left of",
        ),
        (
            {"taints": [{"key": "site", "value": "b", "effect": "NoSchedule"}]},
            "Node jetson-1: tainted (site=b:NoSchedule), 92080 MiB left of",
        ),
    ],
)
def test_a_pod_that_no_node_takes_is_told_to_look_at_the_nodes_and_not_to_wait(spec: Json, says: str) -> None:
    world = well()
    world.one("nodes", "jetson-1")["spec"] = spec
    _waiting(world, "no nodes with enough resources were found")
    verdict = _why(world, "waits")
    assert verdict.sentence.endswith("jetson-1 is not a node that it accepts.")
    assert verdict.remedy.startswith("Compare its node selector and tolerations with the labels and taints")
    assert verdict.evidence[0].startswith(says)


def test_what_is_left_is_no_number_where_kai_gives_no_share() -> None:
    world = well()
    sliced = deepcopy(world.one("nodes", "jetson-1"))
    sliced["metadata"] |= {
        "name": "sliced",
        "labels": sliced["metadata"]["labels"] | {"nvidia.com/mig.strategy": "mixed"},
    }
    sliced["status"]["allocatable"] |= {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "2"}
    world.lists["nodes"].append(sliced)
    world.lists["pods"] += [fraction(f"arm-{number}", node="jetson-1") for number in range(3)]
    _waiting(world, "no nodes with enough resources were found")
    left = [line for line in _why(world, "waits").evidence if line.startswith("Node sliced")]
    assert left == ["Node sliced: KAI gives no fractions there (MIG strategy mixed)"]


def test_a_pod_is_named_once_in_its_sentence() -> None:
    world = well()
    world.lists["pods"].append(fraction("waits", labels={"kai.scheduler/queue": "nobodys"}))
    assert _why(world, "waits").sentence == (
        "Pod default/waits is Pending because it is submitted to queue 'nobodys', which is not there."
    )


def test_what_stands_in_the_way_of_binding_is_the_reason() -> None:
    world = well()
    _waiting(world)
    reason = f"failed waiting for GPU reservation pod to allocate: {RESERVATION}/gpu-reservation-2"
    world.lists["bindrequests"].append(
        {
            "metadata": {"name": "waits", "namespace": "default"},
            "spec": {"podName": "waits", "selectedNode": "jetson-1"},
            "status": {"phase": "Failed", "reason": reason, "failedAttempts": 1},
        }
    )
    verdict = _why(world, "waits")
    assert verdict.code == "KA0513"
    assert any(reason in line for line in verdict.evidence)


def test_a_pod_of_another_scheduler_has_its_own_words() -> None:
    world = well()
    said = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes have a disk"}]
    world.lists["pods"].append(pod("plain", scheduler="default-scheduler", conditions=said))
    verdict = _why(world, "plain")
    assert verdict.sentence == "Pod default/plain is Pending: 0/2 nodes have a disk"


def test_where_no_check_knows_more_the_sentence_has_the_words_that_status_shows() -> None:
    world = well()
    unready = [{"type": "Ready", "status": "False", "message": "containers with unready status: [main]"}]
    there = pod("plain", node="cpu-1", scheduler="default-scheduler", phase="Pending", conditions=unready)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    there["status"]["containerStatuses"] = [{"name": "main", "ready": False, "state": waiting}]
    world.lists["pods"].append(there)
    verdict = _why(world, "plain")
    assert verdict.sentence == "Pod default/plain is Pending on node cpu-1: ImagePullBackOff: no such image"


def test_an_init_container_that_does_not_start_says_why() -> None:
    world = well()
    there = fraction("stuck", node="jetson-1", phase="Pending")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    there["status"]["initContainerStatuses"] = [{"name": "fetch", "ready": False, "state": waiting}]
    there["status"]["containerStatuses"] = [
        {"name": "main", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
    ]
    world.lists["pods"].append(there)
    verdict = _why(world, "stuck")
    assert (verdict.code, verdict.evidence[0]) == ("KA0712", "container fetch: ImagePullBackOff: no such image")


def test_a_container_that_does_not_start_says_why() -> None:
    world = well()
    there = fraction("fails", node="jetson-1", phase="Pending")
    waiting = {"waiting": {"reason": "RunContainerError", "message": "unsupported device id: GPU-1"}}
    there["status"]["containerStatuses"] = [{"name": "main", "ready": False, "state": waiting}]
    world.lists["pods"].append(there)
    verdict = _why(world, "fails")
    assert verdict.code == "KA0708"
    assert verdict.sentence == (
        "Pod default/fails is Pending on node jetson-1 because it does not start on node 'jetson-1': the container "
        "toolkit does not take the GPU's name."
    )


_KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-10-01T10:00:00Z"}}
_HOW = "OOMKilled (status 137), restarts: "


def test_a_pod_that_ended_is_told_how() -> None:
    world = well()
    statuses = [{"name": "main", "state": _KILLED}]
    world.lists["pods"].append(pod("ended", node="jetson-1", phase="Failed", containerStatuses=statuses))
    verdict = _why(world, "ended")
    assert verdict.sentence == f"Pod default/ended is Failed on node jetson-1: {_HOW}0"
    assert verdict.evidence[0] == f"container main ended at 2026-10-01 10:00 UTC: {_HOW}0"


def test_a_pod_that_ends_again_and_again_is_told_how_it_ended_last() -> None:
    world = well()
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    statuses = [{"name": "main", "restartCount": 7, "state": waits, "lastState": _KILLED}]
    world.lists["pods"].append(pod("loops", node="jetson-1", phase="Running", containerStatuses=statuses))
    verdict = _why(world, "loops")
    assert verdict.sentence == (
        "Pod default/loops is Running and not ready because it ends again and again on node 'jetson-1'."
    )
    assert (verdict.code, verdict.evidence[0]) == ("KA0712", "container main: CrashLoopBackOff: back-off 5m0s")
    assert verdict.evidence[1] == f"container main ended at 2026-10-01 10:00 UTC: {_HOW}7"


@pytest.mark.parametrize(
    ("name", "namespace", "hint"),
    [("arms", "default", "Did you mean 'arm'?"), ("arm", "other", "add --namespace default"), ("x", "default", "")],
)
def test_a_pod_that_is_not_there_is_an_error_with_a_hint(name: str, namespace: str, hint: str) -> None:
    with pytest.raises(OperationError, match=f"There is no pod '{name}' in namespace '{namespace}'") as caught:
        find_pod(well().facts(), name, namespace)
    assert str(caught.value).endswith(hint or f"'{namespace}'.") or hint in str(caught.value)
