"""What is read of a cluster: nodes that KAI uses, pods where they are, groups, queues."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cluster.access.answers.answer import Condition
from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.lists import Unseen
from cluster.snapshot import BindRequest, Config, PodGroup, Queue, Snapshot
from gpu_sharing.model import Strategy
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.plan.live import scene_of_cluster
from operations.plan.machines import Scene
from operations.plan.report import PlanReport, plan, status, text
from testbed.stacks import Json, jetson, parse

_QUEUE = {"metadata": {"name": "default-queue"}, "spec": {"resources": {"gpu": {"quota": 0, "limit": 0.75}}}}
_GPU = {"nvidia.com/gpu.memory": "131072", "nvidia.com/gpu.count": "1"}


def _node(name: str = "n", labels: dict[str, str] | None = None, **of_spec: object) -> Node:
    allocatable = {"cpu": "12", "memory": "125000Mi", "nvidia.com/gpu": "1", "pods": "110"}
    return Node.model_validate(
        {
            "metadata": {"name": name, "labels": _GPU if labels is None else labels},
            "spec": of_spec,
            "status": {
                "allocatable": allocatable,
                "capacity": {"memory": "128000Mi"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def _pod(name: str, mib: str = "30720", node: str = "", group: str = "", **more: Any) -> Pod:  # noqa: ANN401 - a manifest
    metadata = {
        "name": name,
        "namespace": more.get("namespace", "default"),
        "creationTimestamp": more.get("created", "2026-11-01T00:00:00Z"),
        "annotations": {"gpu-memory": mib, "pod-group-name": more.get("pod_group", f"pg-{name}")} if mib else {},
        "labels": {"runai-gpu-group": group} if group else more.get("labels", {}),
    }
    container = {"name": "main", "resources": more.get("resources", {})}
    spec = {"nodeName": node, "schedulerName": more.get("scheduler", "kai-scheduler"), "containers": [container]}
    return Pod.model_validate(
        {"metadata": metadata, "spec": spec | more.get("spec", {}), "status": {"phase": more.get("phase", "Pending")}}
    )


def _group(name: str, **spec: object) -> PodGroup:
    said = {"queue": "default-queue", "minMember": 1, **spec}
    return PodGroup.model_validate({"metadata": {"name": name, "namespace": "default"}, "spec": said})


def _scene(*pods: Pod, **more: Any) -> Scene:  # noqa: ANN401 - fields of a snapshot
    snapshot = Snapshot(taken=datetime.now(UTC), **{"nodes": (_node(),), "pods": pods, **more})
    return scene_of_cluster(snapshot, None, None)


def _plan(*pods: Pod, **more: Any) -> PlanReport:  # noqa: ANN401 - fields of a snapshot
    return plan(_scene(*pods, **more), ())


def test_who_runs_stays_where_he_is_and_who_waits_is_placed_beside_him() -> None:
    running = _pod("old", node="n", group="abc", phase="Running")
    answer = _plan(running, _pod("new"))
    assert (answer.running, answer.pending) == (2, 0)
    [gpu] = answer.nodes[0].gpus
    assert (gpu.group, [share.pod for share in gpu.shares]) == ("abc", ["old", "new"])


def test_a_kubelet_that_says_what_no_machine_has_is_taken_for_one_that_says_nothing() -> None:
    node = _node()
    node.allocatable.update({"cpu": "100e198", "memory": "100e198"})
    [machine] = _scene(nodes=(node,)).machines
    assert (machine.node.cpu, machine.node.memory) == (None, None)


def test_five_pods_of_a_cluster_are_four_and_one() -> None:
    answer = _plan(*[_pod(f"p{number}") for number in range(5)])
    assert (answer.running, answer.pending) == (4, 1)


@pytest.mark.parametrize("groups", [{"selectedGPUGroups": ["abc"]}, {"selectedFractionalGpuGroups": [{"id": "abc"}]}])
def test_a_pod_that_is_about_to_be_bound_counts_where_it_goes(groups: dict[str, object]) -> None:
    spec = {"podName": "soon", "selectedNode": "n", **groups}
    bound = BindRequest.model_validate({"metadata": {"name": "soon", "namespace": "default"}, "spec": spec})
    answer = _plan(_pod("soon"), bind_requests=(bound,))
    assert [gpu.group for gpu in answer.nodes[0].gpus] == ["abc"]
    tried = _plan(_pod("soon", labels={"runai-gpu-group": "old"}), bind_requests=(bound,))
    assert [gpu.group for gpu in tried.nodes[0].gpus] == ["abc"], "the label is of an attempt that failed"
    failed = bound.model_copy(update={"phase": "Failed"})
    assert [gpu.group for gpu in _plan(_pod("soon"), bind_requests=(failed,)).nodes[0].gpus] == ["n/1"]


def test_a_reservation_pod_takes_no_gpu_away() -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    reserved = _pod(
        "gpu-reservation-1",
        "",
        "n",
        namespace="kai-resource-reservation",
        labels={"app": "kai-resource-reservation", "runai-gpu-group": "abc"},
        scheduler="default-scheduler",
        resources=resources,
    )
    answer = _plan(reserved, _pod("old", node="n", group="abc"))
    assert [gpu.free_mib for gpu in answer.nodes[0].gpus] == [100280]
    other = _pod("other", "", "n", scheduler="default-scheduler", resources=resources)
    assert [gpu.whole for gpu in _plan(other).nodes[0].gpus] == ["other"]


def test_pods_of_a_kai_with_other_names_are_known_by_its_config() -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    labels = {"runai-gpu-group": "abc"}
    reserved = _pod("gpu-reservation-1", "", "n", namespace="product", labels=labels, resources=resources)
    spec = {"global": {"schedulerName": "theirs"}, "binder": {"resourceReservation": {"namespace": "product"}}}
    config = Config.model_validate({"metadata": {"name": "kai-config"}, "spec": spec})
    running = _pod("old", node="n", group="abc", scheduler="theirs")
    answer = _plan(reserved, running, _pod("new", scheduler="theirs"), _pod("nobodys"), configs=(config,))
    [gpu] = answer.nodes[0].gpus
    assert (gpu.group, [share.pod for share in gpu.shares]) == ("abc", ["old", "new"])


def test_who_is_gated_or_on_his_way_out_is_not_placed() -> None:
    gated, leaving = _pod("gated"), _pod("leaving")
    why = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gated = gated.model_copy(update={"conditions": [Condition.model_validate(why)]})
    leaving = leaving.model_copy(update={"deleted": datetime.now(UTC)})
    answer = _plan(gated, leaving, _pod("new"))
    assert [share.pod for gpu in answer.nodes[0].gpus for share in gpu.shares] == ["new"]


def test_nobody_but_kai_reads_a_pods_annotations() -> None:
    whole = {"limits": {"nvidia.com/gpu": "1"}}
    foreign = _pod("foreign", "many", "n", scheduler="default-scheduler", resources=whole)
    shares = _pod("shares", "1000", "n", scheduler="default-scheduler", group="g")
    answer = _plan(foreign, shares)
    assert ([gpu.whole for gpu in answer.nodes[0].gpus], answer.remarks) == (["foreign"], [])


def test_who_has_ended_or_waits_for_something_else_is_of_no_concern() -> None:
    done = _pod("done", node="n", group="g", phase="Succeeded")
    answer = _plan(done, _pod("other", scheduler="default-scheduler"), _pod("without-gpu", ""))
    assert (answer.running, answer.pending, answer.nodes[0].gpus[0].shares) == (0, 0, [])


def test_a_group_keeps_to_its_queue() -> None:
    pods = [_pod(f"p{number}", "32750", pod_group="pg") for number in range(4)]
    answer = _plan(*pods, pod_groups=(_group("pg"),), queues=(Queue.model_validate(_QUEUE),))
    assert (answer.running, answer.pending) == (3, 1)
    assert [pod.reason for pod in answer.pods if pod.reason] == ["queue-limit"]
    for_good = _plan(
        *pods, pod_groups=(_group("pg", priorityClassName="inference"),), queues=(Queue.model_validate(_QUEUE),)
    )
    assert {pod.reason for pod in for_good.pods} == {"queue-quota"}


def test_a_priority_class_of_ones_own_counts_as_its_pods_say_and_is_told_where_they_do_not() -> None:
    queues, groups = (Queue.model_validate(_QUEUE),), (_group("pg", priorityClassName="robots"),)
    said = _pod("p", pod_group="pg", spec={"priorityClassName": "robots", "priority": 1000})
    answer = _plan(said, pod_groups=groups, queues=queues)
    assert (answer.pods[0].reason, answer.remarks) == ("queue-quota", [])
    unsaid = [_pod(name, pod_group="pg") for name in ("p", "q")]
    answer = _plan(*unsaid, pod_groups=groups, queues=queues)
    assert (answer.running, answer.remarks) == (
        2,
        ["PriorityClass robots is not one of KAI's: pods in groups of it count as train."],
    )


def test_a_running_pods_requests_as_a_whole_are_the_nodes() -> None:
    whole = _pod("p", node="n", spec={"resources": {"requests": {"cpu": "12"}}})
    assert [pod.reason for pod in _plan(whole, _pod("q", resources={"requests": {"cpu": "1"}})).pods] == [None, "cpu"]


def test_a_pod_without_its_group_is_told() -> None:
    assert _scene(_pod("young")).remarks == ("young: KAI has made no pod group of it yet, so no queue is kept to.",)


def test_the_oldest_is_served_first() -> None:
    young = _pod("a", "100000", created="2026-11-02T00:00:00Z")
    old = _pod("b", "100000", created="2026-11-01T00:00:00Z")
    answer = _plan(young, old)
    assert [pod.name for pod in answer.pods if pod.node] == ["b"]


def test_nodes_of_another_pool_are_left_out_and_named() -> None:
    scene = _scene(nodes=(_node(), _node("out", _GPU | {"kai.scheduler/node-pool": "time-slicing"})))
    assert [machine.node.name for machine in scene.machines] == ["n"]
    assert scene.remarks == ("out is left out: it is in the node pool 'time-slicing'.",)


def test_a_pod_that_waits_for_another_node_pool_is_left_out_and_named() -> None:
    scene = _scene(_pod("p", labels={"kai.scheduler/node-pool": "b"}), _pod("q"))
    assert [pod.name for workload in scene.workloads for pod in workload.pods] == ["q"]
    assert scene.remarks[0] == "p is left out: it is in the node pool 'b'."


def test_the_label_of_node_pools_is_the_one_that_kais_config_says() -> None:
    config = {"metadata": {"name": "kai-config"}, "spec": {"global": {"nodePoolLabelKey": "pool"}}}
    scene = _scene(nodes=(_node(), _node("out", _GPU | {"pool": "b"})), configs=(Config.model_validate(config),))
    assert scene.remarks == ("out is left out: it is in the node pool 'b'.",)


def test_a_node_whose_time_slices_have_a_name_of_their_own_is_left_out() -> None:
    sliced = _node("out").model_copy(update={"devices": 0, "allocatable": {"nvidia.com/gpu.shared": "4"}})
    scene = _scene(nodes=(_node(), sliced))
    assert [machine.node.name for machine in scene.machines] == ["n"]
    assert scene.remarks == ("out is left out: it is time-sliced as nvidia.com/gpu.shared, which is no GPU to KAI.",)


def test_a_plan_says_that_it_looks_at_no_affinity_of_pods_that_wait() -> None:
    insists: Json = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}
    prefers: Json = {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}
    runs, waits = _pod("old", node="n", group="g", spec=insists), _pod("new", spec=insists)
    groups = (_group("pg-new"), _group("pg-likes"))
    scene = _scene(runs, waits, _pod("likes", spec=prefers), pod_groups=groups)
    assert scene.remarks == ("Of 1 pod that waits a required affinity is not looked at.",)


def test_a_plan_says_that_it_counts_no_claims_of_dra() -> None:
    claiming = _pod("p", mib="", node="n", scheduler="default-scheduler", spec={"resourceClaims": [{"name": "gpu"}]})
    assert _scene(claiming).remarks == ("1 pod with DRA claims (resource.k8s.io): GPUs among these are not counted.",)
    assert _scene().remarks == ()


def test_who_runs_on_a_cordoned_node_stays_and_nobody_joins_him() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    answer = _plan(_pod("old", node="n", group="g"), _pod("new"), nodes=(_node(unschedulable=True, taints=[taint]),))
    assert {pod.name: pod.node for pod in answer.pods} == {"old": "n", "new": None}
    assert answer.remarks[0] == "n is cordoned: nothing is placed there."
    gone = _node().model_copy(update={"conditions": {"Ready": "Unknown"}})
    assert _scene(nodes=(gone,)).remarks == ("n is not Ready: nothing is placed there.",)


def test_taints_that_keep_pods_off_are_said_once_for_all_nodes_that_have_them() -> None:
    off = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    prefers = {"key": "k", "effect": "PreferNoSchedule"}
    nodes = (_node("a", taints=[off, prefers]), _node("b", taints=[off]), _node("c", taints=[prefers]))
    assert _scene(nodes=nodes).remarks == (
        "Only pods that tolerate nvidia.com/gpu=present:NoSchedule are placed on a, b.",
    )


def test_a_node_without_a_gpu_is_not_shown() -> None:
    plain = _node("cpu", {}).model_copy(update={"devices": 0})
    assert [machine.node.name for machine in _scene(nodes=(plain, _node())).machines] == ["n"]


def test_mig_and_its_strategy_are_read() -> None:
    node = _node("m", {"nvidia.com/mig.strategy": "mixed"})
    sliced = node.model_copy(update={"allocatable": {"nvidia.com/mig-1g.5gb": "2"}})
    [machine] = _scene(nodes=(sliced,)).machines
    assert (machine.node.mig, machine.node.slices) == ("mixed", {"nvidia.com/mig-1g.5gb": 2})
    [unsaid] = _scene(nodes=(sliced.model_copy(update={"labels": {}}),)).machines
    assert unsaid.node.mig == "none"
    [switched_off] = _scene(
        nodes=(sliced.model_copy(update={"labels": {"node-role.kubernetes.io/mig-enabled": "false"}}),)
    ).machines
    assert switched_off.node.mig is None


def test_time_slicing_is_a_warning() -> None:
    sliced = _node().model_copy(update={"devices": 4})
    [warning] = _plan(nodes=(sliced,)).warnings
    assert "has 4 allocatable nvidia.com/gpu and the label nvidia.com/gpu.count=1" in warning


def test_a_memory_label_that_went_is_named_and_not_the_pods_that_share_the_gpu() -> None:
    labels = {"nvidia.com/gpu.count": "1"}
    [warning] = _plan(_pod("old", node="n", group="g"), nodes=(_node(labels=labels),)).warnings
    assert warning.startswith("n has no label nvidia.com/gpu.memory that KAI can read")


def test_a_node_that_advertises_no_gpu_is_no_warning_of_memory_that_is_given_away_twice() -> None:
    answer = _plan(_pod("a"), nodes=(_node().model_copy(update={"devices": 0}),))
    assert ([pod.reason for pod in answer.pods], answer.warnings) == (["no-gpu"], [])


def test_a_node_that_says_to_have_billions_of_gpus_takes_no_memory_of_the_plan() -> None:
    labels = _GPU | {"nvidia.com/gpu.count": "4000000000"}
    answer = _plan(_pod("a"), nodes=(_node(labels=labels),))
    assert "the label nvidia.com/gpu.count=128 or more" in answer.warnings[0]
    status = {"allocatable": {"nvidia.com/gpu": "4G"}}
    advertised = Node.model_validate({"metadata": {"name": "n", "labels": {}}, "status": status})
    assert advertised.devices == 16_000
    [planned] = _plan(_pod("a"), nodes=(advertised,)).nodes
    assert len(planned.gpus) == 128, "as many as status shows"


def test_time_slices_beyond_every_number_of_gpus_are_told_as_more() -> None:
    sliced = _node().model_copy(update={"devices": 16_000})
    [warning] = _plan(nodes=(sliced,)).warnings
    assert "has 128 or more allocatable nvidia.com/gpu and the label nvidia.com/gpu.count=1" in warning


def test_unified_memory_has_its_second_column() -> None:
    memory = {"requests": {"memory": "8Gi"}}
    jetson_node = _node("jetson-1", _GPU | {"kai-anywhere.io/platform": "tegra"})
    system = _pod("system", "", "jetson-1", scheduler="default-scheduler", resources=memory)
    answer = _plan(system, nodes=(jetson_node,))
    column = answer.nodes[0].system_memory
    assert column is not None
    assert (column.gpu_mib, column.requests_mib, column.machine_mib) == (131072, 8192, 128000)
    assert "are given away twice" in answer.warnings[0]
    assert _plan(system).nodes[0].system_memory is None


def test_settings_say_which_nodes_share_their_memory_and_the_strategy() -> None:
    snapshot = Snapshot(taken=datetime.now(UTC), nodes=(_node("jetson-1"),))
    scene = scene_of_cluster(snapshot, parse(jetson()), None)
    assert (scene.machines[0].unified, scene.strategy) == (True, Strategy.BINPACK)
    assert scene_of_cluster(snapshot, parse(jetson()), Strategy.SPREAD).strategy is Strategy.SPREAD


def test_what_cant_be_read_is_said_or_ends_the_plan() -> None:
    answer = _plan(unseen=(Unseen("KAI's queues", "no right"),))
    assert answer.warnings == ["KAI's queues could not be read: no right"]
    assert status(answer, require_all=False) is ExitStatus.WARNINGS
    with pytest.raises(OperationError, match="The cluster's pods can't be read: no right"):
        _scene(unseen=(Unseen("pods", "no right"),))


def test_a_queue_that_may_not_be_read_is_none_that_is_missing() -> None:
    waiting, unseen = {"pod_groups": (_group("pg-p"),)}, (Unseen("KAI's queues", "no right"),)
    assert _plan(_pod("p"), **waiting).pods[0].reason == "queue-unknown"
    assert _plan(_pod("p"), **waiting, unseen=unseen).running == 1


def test_a_pod_group_that_may_not_be_read_is_none_that_kai_has_not_made() -> None:
    assert _plan(_pod("p"), unseen=(Unseen("KAI's pod groups", "no right"),)).remarks == []


def test_nothing_that_a_pod_asks_for_commands_the_terminal() -> None:
    lines = text(plan(_scene(_pod("odd", "\x1b]0;owned\x074Gi", node="n")), ())).splitlines()
    assert "4Gi" in lines[-1]
    assert all(line.isprintable() for line in lines)


def test_a_pod_that_cant_be_read_is_left_out_and_named() -> None:
    scene = _scene(_pod("odd", "4Gi", node="n"))
    assert scene.workloads == ()
    assert scene.remarks[0].startswith("odd is left out: gpu-memory is '4Gi'")


def test_a_frontend_of_remote_gpus_takes_only_pods_that_select_frontends() -> None:
    label = {"gvirtus.io/frontend.allowed": "true"}
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    pods = [
        _pod("share"),
        _pod("whole", mib="", resources=gpu),
        _pod("remote", mib="", resources=gpu, spec={"nodeSelector": label}),
    ]
    answer = _plan(*pods, nodes=(_node("far", label),))
    assert {pod.name: pod.node for pod in answer.pods} == {"share": None, "whole": None, "remote": "far"}
    assert "far gets pods with remote GPUs alone: it is a frontend of them." in answer.remarks
    [far] = answer.nodes
    assert not far.fractions
    assert text(answer).split("\n\n")[1] == "far: KAI gives no fractions there\n" + _whole(1, "remote")


def _whole(number: int, pod: str) -> str:
    return f"  GPU {number} |{'#' * 60}| all of it: {pod}"


def test_memory_that_nobody_gets_in_fractions_is_not_called_free() -> None:
    """Of a node without a label KAI counts 100 MiB, and one with MIG slices gets no fractions."""
    sliced = _node("m", {**_GPU, "nvidia.com/mig.strategy": "mixed"})
    sliced = sliced.model_copy(update={"allocatable": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "2"}})
    half = _pod("half", mib="", node="n", group="g")
    half = half.model_copy(update={"annotations": {"gpu-fraction": "0.5"}})
    answer = _plan(half, nodes=(sliced, _node("n", {"nvidia.com/gpu.count": "1"})))
    _, mig, unlabelled, *_ = text(answer).split("\n\n")
    assert mig == "m: KAI gives no fractions there"
    assert unlabelled == (
        f"n: no label nvidia.com/gpu.memory\n  GPU 1 |{'A' * 30}{'.' * 30}| memory not known\n         A half"
    )


def test_a_pod_that_names_its_node_and_asks_for_more_gpus_than_any_node_has_is_planned_around() -> None:
    huge = _pod("huge", mib="", node="n", resources={"limits": {"nvidia.com/gpu": "9P"}})
    answer = _plan(huge, _pod("share"))
    assert {pod.name: pod.node for pod in answer.pods} == {"huge": "n", "share": None}
