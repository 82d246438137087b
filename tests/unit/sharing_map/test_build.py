"""Which pod has which share of which GPU, and what proves it."""

from datetime import UTC, datetime

import pytest

from cluster.access.lists import Unseen
from cluster.snapshot import NODES, PODS
from sharing_map.report import NodeStatus, Status
from testbed.shared_gpus import CREATED, Manifest, frontend, gpu_node, pod, queue, reservation, share
from tests.unit.sharing_map.clusters import status_of

_CREATED = datetime(2026, 11, 1, 10, tzinfo=UTC)


def _only_node(status: Status) -> NodeStatus:
    [node] = status.nodes
    return node


def test_pods_of_one_group_share_one_gpu_and_the_rest_is_free() -> None:
    pods = [reservation("g"), share("a", "g"), share("b", "g", mib=20000)]
    status = status_of(nodes=[gpu_node("jetson-1")], pods=pods)
    node = _only_node(status)
    assert (node.shared_mib, node.sharing.value, node.platform.value) == (131000, "kai", "tegra")
    [gpu] = node.gpus
    assert (gpu.use, gpu.group, gpu.total_mib, gpu.taken_mib, gpu.free_mib) == ("shared", "g", 131000, 50000, 81000)
    assert [(share.name, share.mib, share.state.value) for share in gpu.shares] == [
        ("a", 30000, "running"),
        ("b", 20000, "running"),
    ]
    assert gpu.reservation is not None
    assert gpu.reservation.device.value == "GPU-1111"
    assert node.other_pods == ()
    assert node.remarks == ()
    assert (status.summary.taken_mib, status.summary.free_mib, status.summary.shares) == (50000, 81000, 2)


def test_a_group_that_kai_gave_up_for_another_is_no_gpu_of_its_own_while_its_reservation_pod_goes() -> None:
    """The binder tries a pod again under a new group; the reservation pod of the old one is there a little longer."""
    gone = reservation("old")
    gone["metadata"]["deletionTimestamp"] = "2026-11-03T09:59:00Z"
    request = {
        "metadata": {"name": "a-x", "namespace": "robots"},
        "spec": {"podName": "a", "selectedNode": "jetson-1", "selectedFractionalGpuGroups": [{"id": "new"}]},
    }
    tried = pod("a", node=None, phase="Pending", annotations={"gpu-memory": "30000"})
    status = status_of(
        nodes=[gpu_node("jetson-1")],
        pods=[gone, reservation("new", uuid=None, phase="Pending"), tried],
        bind_requests=[request],
    )
    node = _only_node(status)
    assert [(gpu.group, gpu.in_use) for gpu in node.gpus] == [("new", True)]
    assert (status.summary.shared_mib, status.summary.taken_mib, status.summary.free_mib) == (131000, 30000, 101000)
    silent, surplus = node.remarks
    assert "has not answered yet" in silent
    assert surplus == (
        f"The reservation pod {gone['metadata']['name']} is being deleted: no pod shares its GPU group old. While it "
        "is there, it may hold a GPU that another group waits for."
    )


def test_a_reservation_pod_without_pods_stands_for_one_of_the_gpus_that_are_free() -> None:
    pods = [reservation("g", uuid="GPU-a"), share("a", "g"), reservation("h", uuid="GPU-b")]
    status = status_of(nodes=[gpu_node("jetson-1", gpus=3)], pods=pods)
    node = _only_node(status)
    assert [(gpu.use, gpu.group, gpu.in_use) for gpu in node.gpus] == [
        ("shared", "g", True),
        ("shared", "h", False),
        ("free", None, False),
    ]
    assert (node.remarks, status.summary.free_mib) == ((), 3 * 131000 - 30000)


def test_every_fact_names_its_field_and_its_age() -> None:
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), share("a", "g")])
    node = _only_node(status)
    [gpu] = node.gpus
    [only] = gpu.shares
    assert gpu.reservation is not None
    assert node.memory_label.proof == "Node jetson-1 metadata.labels[nvidia.com/gpu.memory]"
    assert node.ready.proof == "Node jetson-1 status.conditions[Ready]"
    assert gpu.reservation.device.proof.endswith("metadata.annotations[run.ai/reserve_for_gpu_index]")
    assert only.asks.proof == "Pod robots/a metadata.annotations[gpu-memory]"
    for fact in (node.memory_label, node.ready, gpu.reservation.device, only.asks, only.state):
        assert fact.since == _CREATED, CREATED


def test_a_label_is_as_old_as_what_its_writer_wrote_last() -> None:
    node = gpu_node("jetson-1")
    memory: Manifest = {"f:metadata": {"f:labels": {"f:nvidia.com/gpu.memory": {}}}}
    node["metadata"]["managedFields"] = [
        {"manager": "kai-anywhere", "time": "2026-11-02T10:00:00Z", "fieldsV1": memory},
        {"manager": "kubelet", "time": "2026-11-02T12:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
    ]
    read = _only_node(status_of(nodes=[node]))
    assert read.memory_label.since == datetime(2026, 11, 2, 10, tzinfo=UTC)
    assert read.platform.since is None, "nobody says when that was written"


def test_a_fraction_is_cut_to_whole_mib_of_what_kai_shares() -> None:
    half = pod("half", annotations={"gpu-fraction": "0.3"}, labels={"runai-gpu-group": "g"})
    [gpu] = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), half])).gpus
    assert [(share.mib, share.asks.value, share.gpus) for share in gpu.shares] == [(39300, "0.3 of a GPU", 0.3)]


def test_a_pod_on_several_gpus_has_its_share_on_each() -> None:
    two = pod(
        "two",
        node="x86-1",
        annotations={"gpu-memory": "10000", "gpu-fraction-num-devices": "2"},
        labels={"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"},
    )
    pods = [reservation("a", node="x86-1", uuid="GPU-a"), reservation("b", node="x86-1", uuid="GPU-b"), two]
    node = _only_node(status_of(nodes=[gpu_node("x86-1", gpus=3, memory_mib=46068)], pods=pods))
    assert [(gpu.use, gpu.group, gpu.free_mib) for gpu in node.gpus] == [
        ("shared", "a", 36000),
        ("shared", "b", 36000),
        ("free", None, 46000),
    ]
    [taken] = node.gpus[0].shares
    assert (taken.asks.value, taken.groups) == ("10000 MiB of 2 GPUs each", ("a", "b"))


def test_a_pod_with_whole_gpus_leaves_nothing_of_them() -> None:
    train = pod("train", node="x86-1", limits={"nvidia.com/gpu": "2"})
    node = _only_node(status_of(nodes=[gpu_node("x86-1", gpus=3, memory_mib=46068)], pods=[train]))
    assert [(gpu.use, gpu.free_mib) for gpu in node.gpus] == [("whole", 0), ("whole", 0), ("free", 46000)]


def test_time_slices_under_a_name_of_their_own_are_shown_and_charged_to_no_queue() -> None:
    node = gpu_node("x86-1", gpus=0, memory_mib=None)
    node["metadata"]["labels"]["nvidia.com/gpu.count"] = "1"
    node["status"]["allocatable"] |= {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "4"}
    others = pod("a", node="x86-1", limits={"nvidia.com/gpu.shared": "1"}, queue=None)
    others["spec"]["schedulerName"] = "default-scheduler"
    of_kai = pod("b", node="x86-1", limits={"nvidia.com/gpu.shared": "2"})
    late = pod("c", node=None, limits={"nvidia.com/gpu.shared": "1"}, phase="Pending")
    status = status_of(nodes=[node], pods=[others, of_kai, late], queues=[queue("robots", used="0")])
    shown = _only_node(status)
    assert (shown.sharing.value, shown.advertised.value, shown.remarks) == ("time-slicing", 4, ())
    assert shown.sharing.proof == "Node x86-1 status.allocatable[nvidia.com/gpu.shared]"
    assert [(other_pod.name, other_pod.asks.value, other_pod.mib) for other_pod in shown.other_pods] == [
        ("a", "1 nvidia.com/gpu.shared", None),
        ("b", "2 nvidia.com/gpu.shared", None),
    ]
    assert [pod.asks and pod.asks.value for pod in status.pending] == ["1 nvidia.com/gpu.shared"]
    assert [(queue.used.value, queue.difference) for queue in status.queues] == [(0, None)]


def test_a_node_that_advertises_time_slices_and_no_count_is_one_with_gpus() -> None:
    node = gpu_node("x86-1", gpus=0, memory_mib=None)
    node["status"]["allocatable"]["nvidia.com/gpu.shared"] = "4"
    assert _only_node(status_of(nodes=[node])).has_gpus


def test_whole_gpus_of_pods_that_are_not_kais_are_taken_too_but_not_annotations() -> None:
    foreign = pod("train", node="x86-1", limits={"nvidia.com/gpu": "1"}, annotations={"gpu-memory": "many"})
    foreign["spec"]["schedulerName"] = "default-scheduler"
    node = _only_node(status_of(nodes=[gpu_node("x86-1", memory_mib=46068)], pods=[foreign]))
    assert [gpu.use for gpu in node.gpus] == ["whole"]


def test_pods_of_a_kai_with_other_names_are_known_by_its_config() -> None:
    held, theirs, nobodys = reservation("g"), share("a", "g"), share("b", "g")
    held["metadata"]["namespace"] = "product-reservation"
    theirs["spec"]["schedulerName"] = "product-scheduler"
    spec = {
        "global": {"schedulerName": "product-scheduler"},
        "binder": {"resourceReservation": {"namespace": "product-reservation"}},
    }
    config: Manifest = {"metadata": {"name": "kai-config"}, "spec": spec}
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[held, theirs, nobodys], configs=[config]))
    [gpu] = node.gpus
    assert gpu.reservation is not None
    assert ([share.name for share in gpu.shares], gpu.taken_mib, node.remarks) == (["a"], 30000, ())
    config["spec"] = {}
    by_default = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), nobodys], configs=[config]))
    assert [share.name for gpu in by_default.gpus for share in gpu.shares] == ["b"]


def test_a_reservation_pod_that_has_not_answered_is_said_with_the_reason() -> None:
    held = reservation("g", uuid=None, phase="Pending")
    waiting = {"reason": "CrashLoopBackOff", "message": "ERROR_LIBRARY_NOT_FOUND"}
    held["status"]["containerStatuses"] = [{"name": "resource-reservation", "state": {"waiting": waiting}}]
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[held]))
    [gpu] = node.gpus
    assert gpu.reservation is not None
    assert gpu.reservation.device.value is None
    assert gpu.reservation.waits == "CrashLoopBackOff: ERROR_LIBRARY_NOT_FOUND"
    assert node.remarks == (f"The reservation pod {held['metadata']['name']} has not answered yet which GPU it has.",)


def test_on_a_jetson_the_uuid_is_the_one_that_our_annotation_keeps() -> None:
    held = reservation("g", uuid="0")
    held["metadata"]["annotations"]["kai-anywhere.io/gpu-uuid"] = "GPU-2222"
    [gpu] = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[held])).gpus
    assert gpu.reservation is not None
    assert gpu.reservation.device.value == "GPU-2222"
    assert gpu.reservation.device.proof.endswith("metadata.annotations[kai-anywhere.io/gpu-uuid]")


def test_without_a_memory_label_no_memory_is_made_up() -> None:
    status = status_of(nodes=[gpu_node("jetson-1", memory_mib=None)], pods=[reservation("g"), share("a", "g")])
    node = _only_node(status)
    [gpu] = node.gpus
    assert (node.shared_mib, node.memory_label.value) == (None, None)
    assert (gpu.total_mib, gpu.taken_mib, gpu.free_mib) == (None, None, None)
    assert "The label nvidia.com/gpu.memory is missing: KAI places no pod with gpu-memory here." in node.remarks
    assert status.summary.free_mib == 0


def test_a_memory_label_that_is_no_number_is_shown_as_it_is() -> None:
    node = gpu_node("jetson-1", memory_mib=None, labels={"nvidia.com/gpu.memory": "128Gi"})
    read = _only_node(status_of(nodes=[node]))
    assert (read.shared_mib, read.memory_label.value) == (None, "128Gi")
    assert read.remarks[0].startswith("The label nvidia.com/gpu.memory is '128Gi', which is no number of MiB")


def test_a_gpu_of_less_than_kai_counts_has_nothing_to_share() -> None:
    status = status_of(nodes=[gpu_node("jetson-1", memory_mib=50)], pods=[reservation("g"), share("a", "g")])
    [gpu] = _only_node(status).gpus
    assert (gpu.total_mib, gpu.free_mib, gpu.shares[0].gpus) == (0, -30000, None)


def test_pods_of_a_time_sliced_node_are_listed_without_memory() -> None:
    pool = {"kai.scheduler/node-pool": "time-slicing"}
    node = gpu_node("x86-1", gpus=2, advertised=8, memory_mib=46068, labels=pool)
    sliced = pod("sliced", node="x86-1", limits={"nvidia.com/gpu": "1"})
    status = status_of(nodes=[node], pods=[sliced])
    read = _only_node(status)
    assert read.sharing.value == "time-slicing"
    assert read.sharing.proof == "Node x86-1 metadata.labels[kai.scheduler/node-pool]"
    assert [(gpu.use, gpu.free_mib) for gpu in read.gpus] == [("time-sliced", None), ("time-sliced", None)]
    assert [(other_pod.name, other_pod.mib) for other_pod in read.other_pods] == [("sliced", None)]
    assert (status.summary.free_mib, status.summary.shared_mib) == (0, 0)


def test_replicas_that_kai_takes_for_gpus_are_a_remark_as_doctor_and_plan_say() -> None:
    [remark] = _only_node(status_of(nodes=[gpu_node("x86-1", gpus=2, advertised=8)])).remarks
    assert remark.startswith("It advertises 8 nvidia.com/gpu, and the label nvidia.com/gpu.count is 2")


def test_memory_that_is_promised_twice_because_of_replicas_is_a_remark() -> None:
    pods = [
        *(reservation(group, uuid="GPU-1111") for group in "ab"),
        *(share(f"{group}-{index}", group) for group in "ab" for index in range(4)),
    ]
    node = _only_node(status_of(nodes=[gpu_node("jetson-1", advertised=4)], pods=pods))
    assert node.sharing.value == "time-slicing"
    assert node.remarks[0].startswith("It advertises 4 nvidia.com/gpu, and the label nvidia.com/gpu.count is 1: KAI")
    assert node.remarks[1:] == (
        "KAI counts 2 GPUs in use where there are 1: the same memory is promised more than once.",
        "2 GPU groups are on the one GPU GPU-1111: its memory is promised 2 times.",
    )


def test_more_than_there_is_shows_as_less_than_nothing_free() -> None:
    pods = [reservation("g"), share("a", "g", mib=100000), share("b", "g", mib=100000)]
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=pods))
    assert [gpu.free_mib for gpu in node.gpus] == [-69000]
    assert node.remarks == ("Pods of GPU group g have been promised 69000 MiB more than KAI shares.",)


def test_a_group_without_its_reservation_pod_is_a_remark() -> None:
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[share("a", "g")]))
    assert [gpu.reservation for gpu in node.gpus] == [None]
    assert node.remarks == ("GPU group g has no reservation pod: KAI's binder deletes its running pods.",)


def test_a_reservation_pod_that_has_ended_is_one_to_kai_and_holds_no_gpu() -> None:
    """As one that the kubelet evicted: the binder looks at no phase (resource_reservation.go, syncForPods)."""
    evicted = reservation("g", phase="Failed")
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[evicted, share("a", "g")]))
    [remark] = node.remarks
    assert remark == (
        f"The reservation pod {evicted['metadata']['name']} has ended (Failed), and KAI makes no other: nothing holds "
        "the GPU of group g, and it may be given to somebody else."
    )
    again = reservation("g")
    again["metadata"]["name"] = "a-second"
    assert _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[again, evicted, share("a", "g")])).remarks == ()
    [idle] = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[evicted])).gpus
    assert (idle.use, idle.group) == ("free", None)


def test_a_share_that_the_binder_is_at_is_taken_already() -> None:
    waiting = pod("a", node=None, annotations={"gpu-memory": "30000"}, phase="Pending")
    request = {
        "metadata": {"name": "a-x", "namespace": "robots", "creationTimestamp": CREATED},
        "spec": {"podName": "a", "selectedNode": "jetson-1", "selectedFractionalGpuGroups": [{"id": "g"}]},
        "status": {"phase": "Pending"},
    }
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), waiting], bind_requests=[request])
    [gpu] = _only_node(status).gpus
    assert (gpu.group, gpu.taken_mib) == ("g", 30000)
    assert gpu.shares[0].state.value == "binding"
    assert gpu.shares[0].state.proof == "BindRequest robots/a-x spec.selectedNode"
    request["status"] = {"phase": "Succeeded"}
    bound = status_of(nodes=[gpu_node("jetson-1")], pods=[waiting], bind_requests=[request])
    assert [gpu.use for gpu in _only_node(bound).gpus] == ["shared"], "the pod was read just before"
    request["status"] = {"phase": "Failed"}
    failed = status_of(nodes=[gpu_node("jetson-1")], pods=[waiting], bind_requests=[request])
    assert [gpu.use for gpu in _only_node(failed).gpus] == ["free"]


@pytest.mark.parametrize("labels", [{"runai-gpu-group/a": "a"}, {"runai-gpu-group": "old"}])
def test_a_share_that_the_binder_is_at_is_on_the_groups_of_its_request_whatever_the_pods_labels_say(
    labels: dict[str, str],
) -> None:
    """As to KAI (pod_info.go): the first of two groups is labelled already, or the one of an attempt that failed."""
    two = {"gpu-memory": "30000", "gpu-fraction-num-devices": "2"}
    waiting = pod("two", node=None, annotations=two, labels=labels, phase="Pending")
    request = {
        "metadata": {"name": "two-x", "namespace": "robots"},
        "spec": {"podName": "two", "selectedNode": "x86-1", "selectedFractionalGpuGroups": [{"id": "a"}, {"id": "b"}]},
    }
    held = [reservation("a", node="x86-1"), reservation("b", node="x86-1", uuid=None)]
    status = status_of(nodes=[gpu_node("x86-1", gpus=2)], pods=[*held, waiting], bind_requests=[request])
    assert [(gpu.group, gpu.taken_mib) for gpu in _only_node(status).gpus] == [("a", 30000), ("b", 30000)]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[share("a", "g", phase=phase)]))
    assert [gpu.use for gpu in node.gpus] == ["free"]


def test_a_pod_that_is_being_deleted_holds_its_share_until_it_is_gone() -> None:
    leaving = share("a", "g")
    leaving["metadata"]["deletionTimestamp"] = CREATED
    [gpu] = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), leaving])).gpus
    assert (gpu.taken_mib, gpu.shares[0].state.value) == (30000, "ending")


def test_a_pod_of_which_its_node_tells_no_more_holds_its_share_and_is_not_said_to_start() -> None:
    lost = share("a", "g", phase="Unknown")
    [gpu] = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), lost])).gpus
    [only] = gpu.shares
    assert (gpu.taken_mib, only.state.value, only.state.proof) == (30000, "unknown", "Pod robots/a status.phase")


def test_nothing_is_called_free_where_pods_could_not_be_read() -> None:
    status = status_of(nodes=[gpu_node("jetson-1")], unseen=[Unseen("pods", "refused")])
    assert [(gpu.use, gpu.free_mib) for gpu in _only_node(status).gpus] == [("unknown", None)]
    summary = status.summary
    assert (summary.free_mib, summary.taken_mib, summary.shares, summary.pending) == (None, None, None, None)
    assert [(gap.what, gap.why) for gap in status.unseen] == [("pods", "refused")]


def test_pods_of_a_node_that_could_not_be_read_are_shown_with_it() -> None:
    status = status_of(pods=[reservation("g"), share("a", "g")], unseen=[Unseen("nodes", "refused")])
    node = _only_node(status)
    assert (node.name, node.ready.value, node.shared_mib) == ("jetson-1", None, None)
    assert [share.name for gpu in node.gpus for share in gpu.shares] == ["a"]
    assert not any("memory" in remark for remark in node.remarks), "the label may well be there"


def test_memory_of_nodes_that_take_no_pods_is_not_free() -> None:
    cordoned, down = gpu_node("jetson-2"), gpu_node("jetson-3")
    cordoned["spec"]["unschedulable"] = True
    down["status"]["conditions"][1]["status"] = "Unknown"
    summary = status_of(nodes=[gpu_node("jetson-1"), cordoned, down]).summary
    assert (summary.free_mib, summary.unavailable_mib, summary.largest_free_mib) == (131000, 262000, 131000)


def test_memory_of_a_node_pool_is_not_free_for_pods_without_one_as_a_plan_leaves_it_out() -> None:
    pooled = gpu_node("jetson-2", labels={"kai.scheduler/node-pool": "b"})
    status_read = status_of(nodes=[gpu_node("jetson-1", memory_mib=1000), pooled])
    assert (
        status_read.summary.free_mib,
        status_read.summary.unavailable_mib,
        status_read.summary.largest_free_mib,
    ) == (1000, 131000, 1000)
    assert [node.pool.value for node in status_read.nodes] == [None, "b"]


def test_memory_where_kai_places_no_fractions_is_neither_taken_nor_free() -> None:
    """A memory label may be left of before: a plan places nothing on frontends and beside MIG slices either."""
    marked = gpu_node("frontend", labels={"gvirtus.io/frontend.allowed": "true"})
    sliced = gpu_node("x86-1", labels={"nvidia.com/mig.strategy": "single"})
    sliced["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] = "1"
    status_read = status_of(
        nodes=[marked, sliced], pods=[reservation("g", node="x86-1"), share("a", "g", node="x86-1")]
    )
    numbers = status_read.summary
    assert (numbers.shared_mib, numbers.taken_mib, numbers.free_mib, numbers.largest_free_mib) == (0, 0, 0, 0)
    assert numbers.shares == 1


def test_nodes_stand_in_the_order_in_which_people_count() -> None:
    names = ["jetson-10", "jetson-9", "2-jetson", "jetson-100"]
    status = status_of(nodes=[gpu_node(name) for name in names])
    assert [node.name for node in status.nodes] == ["2-jetson", "jetson-9", "jetson-10", "jetson-100"]


def test_pods_with_claims_of_dra_are_counted_as_not_counted() -> None:
    claiming, ended, plain = (pod(name, queue=None) for name in ("claiming", "ended", "plain"))
    for new_pod in (claiming, ended):
        new_pod["spec"] |= {"schedulerName": "default-scheduler", "resourceClaims": [{"name": "gpu"}]}
    ended["status"]["phase"] = "Succeeded"
    summary = status_of(nodes=[gpu_node("jetson-1")], pods=[claiming, ended, plain]).summary
    assert (summary.claiming, summary.shares) == (1, 0)
    assert status_of(unseen=[Unseen(PODS, "refused")]).summary.claiming is None


def test_a_device_plugin_that_advertises_nothing_is_a_remark() -> None:
    node = _only_node(status_of(nodes=[gpu_node("jetson-1", advertised=0)]))
    assert node.remarks == ("The device plugin advertises no nvidia.com/gpu, so KAI places nothing here.",)


@pytest.mark.parametrize(("goes", "times"), [({}, 1), ({"deletionTimestamp": CREATED}, 0)])
def test_several_reservation_pods_of_one_group_are_a_remark_until_they_go(goes: Manifest, times: int) -> None:
    """As doctor says it (KA0511): the free GPU that KAI counts is held."""
    second = reservation("g", uuid="GPU-2222")
    second["metadata"] |= {"name": "second", **goes}
    pods = [reservation("g"), second, share("a", "g")]
    remarks = _only_node(status_of(nodes=[gpu_node("jetson-1", gpus=2)], pods=pods)).remarks
    assert remarks == ("GPU group g has 2 reservation pods: each holds a GPU, and KAI counts one.",) * times


def test_a_gpu_that_only_the_operator_has_found_is_a_remark() -> None:
    """As doctor says it (KA0403): nothing counts the GPUs of a node whose driver or device plugin is not up."""
    marked = gpu_node("x86-1", gpus=0, memory_mib=None, labels={"nvidia.com/gpu.present": "true"})
    del marked["metadata"]["labels"]["nvidia.com/gpu.count"]
    node = _only_node(status_of(nodes=[marked]))
    assert node.remarks == ("The device plugin advertises no nvidia.com/gpu, so KAI places nothing here.",)
    assert node.has_gpus
    marked["metadata"]["labels"]["nvidia.com/gpu.present"] = "false"
    assert not _only_node(status_of(nodes=[marked])).has_gpus


@pytest.mark.parametrize("label", ["0", "50", "1048576"])
def test_memory_of_which_kai_shares_nothing_is_a_remark(label: str) -> None:
    """As doctor says it (KA0404); the third is bytes to KAI."""
    node = _only_node(status_of(nodes=[gpu_node("jetson-1", labels={"nvidia.com/gpu.memory": label})]))
    [remark] = node.remarks
    assert remark.startswith(f"The label nvidia.com/gpu.memory is '{label}', of which KAI shares nothing:")
    assert node.can_share_mib is None


def test_a_frontend_of_remote_gpus_has_none_whatever_is_labelled() -> None:
    marked = gpu_node("cpu-1", gpus=2, labels={"gvirtus.io/frontend.allowed": "true", "nvidia.com/gpu.present": "true"})
    status_read = status_of(nodes=[marked])
    assert (status_read.summary.gpu_nodes, status_read.summary.gpus) == (0, 0)
    assert _only_node(status_read).remarks == ()


def test_a_frontend_of_remote_gpus_has_none_and_shows_who_uses_them() -> None:
    remote = pod("remote", node="cpu-1", limits={"nvidia.com/gpu": "1"})
    busy = status_of(nodes=[frontend("cpu-1")], pods=[remote])
    node = _only_node(busy)
    assert (node.sharing.value, node.gpu_count.value, node.advertised.value) == ("remote", 0, 8)
    assert node.sharing.proof == "Node cpu-1 metadata.labels[gvirtus.io/frontend.allowed]"
    assert [other_pod.name for other_pod in node.other_pods] == ["remote"]
    assert (node.gpus, node.remarks) == ((), ())
    assert (busy.summary.gpu_nodes, busy.summary.gpus) == (0, 0)
    assert not _only_node(status_of(nodes=[frontend("cpu-1")])).has_gpus


def test_mig_slices_are_what_a_device_plugin_advertises_too() -> None:
    mixed = gpu_node("x86-1", advertised=0, memory_mib=81920, labels={"nvidia.com/mig.strategy": "mixed"})
    mixed["status"]["allocatable"] |= {"nvidia.com/mig-1g.10gb": "5", "nvidia.com/mig-2g.20gb": "1"}
    node = _only_node(status_of(nodes=[mixed]))
    assert (node.sharing.value, node.advertised.value, node.remarks) == ("mig", 6, ())


def test_labels_of_many_pods_make_no_more_gpu_groups_than_a_node_has_gpus_and_hide_none_of_kais() -> None:
    def many(name: str) -> Manifest:
        labels = {f"runai-gpu-group/{number}": f"{name}-{number}" for number in range(128)}
        return pod(name, annotations={"gpu-memory": "1"}, labels=labels)

    pods = [*map(many, ["a", "b", "c"]), reservation("zz"), share("z", "zz")]
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=pods))
    assert len(node.gpus) == 128 + 1
    assert [share.name for gpu in node.gpus if gpu.group == "zz" for share in gpu.shares] == ["z"]
    assert [other_pod.name for other_pod in node.other_pods] == ["b", "c"]


def test_labels_of_one_pod_make_no_more_gpu_groups_than_a_node_has_gpus() -> None:
    labels = {f"runai-gpu-group/{number}": f"g{number}" for number in range(20_000)}
    many = pod("a", annotations={"gpu-fraction": "0.5"}, labels=labels)
    assert len(_only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[many])).gpus) == 128


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "cpu"])
@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
@pytest.mark.parametrize("amount", ["100e198", "9" * 5000])
def test_a_pod_that_asks_for_more_than_any_machine_has_hides_no_other(
    resource: str, scheduler: str, amount: str
) -> None:
    """The API server takes it of everybody, and writes 1e200 so."""
    greedy = pod("greedy", node=None, limits={resource: amount}, phase="Pending")
    greedy["spec"] |= {"schedulerName": scheduler}
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), share("a", "g"), greedy])
    assert [share.name for gpu in status.nodes[0].gpus for share in gpu.shares] == ["a"]
    assert [pod.name for pod in status.pending] == (["greedy"] if scheduler == "kai-scheduler" else [])


def test_pods_that_name_nodes_without_a_gpu_or_none_that_there_are_make_no_gpu_groups_of_their_own() -> None:
    """Who creates pods names any number of nodes: with groups of their own, 128 times as much as the pods."""
    labels = {f"runai-gpu-group/{number}": f"g{number}" for number in range(128)}
    many = [pod(f"a{n}", node=f"no-{n}", annotations={"gpu-memory": "1"}, labels=labels) for n in range(20)]
    read = status_of(nodes=[gpu_node("jetson-1")], pods=many).nodes
    assert [len(node.gpus) for node in read] == [1] + [0] * 20
    assert [other_pod.name for node in read for other_pod in node.other_pods] == [f"a{n}" for n in range(20)]
    without = [gpu_node(f"no-{n}", gpus=0, memory_mib=None) for n in range(20)]
    assert [len(node.gpus) for node in status_of(nodes=without, pods=many).nodes] == [0] * 20
    unseen = [Unseen(NODES, "refused")]
    assert [len(node.gpus) for node in status_of(pods=many, unseen=unseen).nodes] == [128] * 20


def test_the_operators_default_mig_strategy_makes_no_mig_node_of_gpus_without_mig() -> None:
    labels = {"nvidia.com/mig.capable": "false", "nvidia.com/mig.strategy": "single"}
    node = gpu_node("x86-1", memory_mib=15360, labels=labels)
    status = status_of(nodes=[node], pods=[reservation("g", node="x86-1"), share("a", "g", node="x86-1", mib=300)])
    read = _only_node(status)
    assert read.sharing.value == "kai"
    assert (status.summary.shared_mib, status.summary.free_mib) == (15300, 15000)


def test_slices_are_shown_as_mig_and_nothing_is_missed_where_all_gpus_are_sliced() -> None:
    node = gpu_node("x86-1", labels={"nvidia.com/mig.strategy": "mixed"})
    node["status"]["allocatable"] = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7"}
    read = _only_node(status_of(nodes=[node]))
    assert (read.sharing.value, read.remarks) == ("mig", ())
    assert read.sharing.proof == "Node x86-1 metadata.labels[nvidia.com/mig.strategy]"


def test_a_pod_that_names_its_node_and_asks_for_a_billion_gpus_takes_no_memory_of_the_map() -> None:
    greedy = pod("greedy", node="jetson-1", phase="Pending", limits={"nvidia.com/gpu": "1G"})
    node = _only_node(status_of(nodes=[gpu_node("jetson-1")], pods=[greedy]))
    assert ([gpu.use for gpu in node.gpus], [other_pod.name for other_pod in node.other_pods]) == (["free"], ["greedy"])


@pytest.mark.parametrize("count", ["4000000000", "9" * 18])
def test_a_node_that_says_to_have_billions_of_gpus_takes_no_memory_of_the_map(count: str) -> None:
    node = gpu_node("jetson-1", labels={"nvidia.com/gpu.count": count})
    read = _only_node(status_of(nodes=[node]))
    assert (read.gpu_count.value, len(read.gpus)) == (128, 1)
    [remark] = read.remarks
    assert remark.startswith(
        f"It advertises 1 nvidia.com/gpu, and the label nvidia.com/gpu.count is {count}: KAI gives"
    )
    del node["metadata"]["labels"]["nvidia.com/gpu.count"]
    node["status"]["allocatable"]["nvidia.com/gpu"] = "4G"
    assert len(_only_node(status_of(nodes=[node])).gpus) == 128


def test_more_gpus_than_any_node_has_are_no_time_slicing_where_the_label_says_as_many() -> None:
    node = gpu_node("x86-1", gpus=200, labels={"nvidia.com/gpu.count": "200"})
    read = _only_node(status_of(nodes=[node]))
    assert (read.sharing.value, len(read.gpus), read.remarks) == ("kai", 128, ())


@pytest.mark.parametrize("count", ["", "two", "9" * 63])
def test_gpus_are_counted_by_what_is_advertised_where_the_label_is_no_number(count: str) -> None:
    node = gpu_node("jetson-1", advertised=2, labels={"nvidia.com/gpu.count": count})
    assert len(_only_node(status_of(nodes=[node])).gpus) == 2


def test_a_gpu_that_is_advertised_is_one_where_the_label_says_none() -> None:
    status = status_of(nodes=[gpu_node("jetson-1", labels={"nvidia.com/gpu.count": "0"})], pods=[share("a", "g")])
    assert (status.summary.gpus, status.summary.shared_mib) == (1, 131000)
    assert (status.summary.taken_mib, status.summary.free_mib) == (30000, 101000)


def test_memory_of_gpus_that_the_device_plugin_does_not_advertise_is_not_free() -> None:
    away = gpu_node("jetson-2", memory_mib=262144, advertised=0)
    summary = status_of(nodes=[gpu_node("jetson-1"), away], pods=[share("a", "g", node="jetson-2")]).summary
    assert (summary.gpus, summary.shared_mib, summary.taken_mib) == (2, 131000, 30000)
    assert (summary.free_mib, summary.unavailable_mib, summary.largest_free_mib) == (131000, 232100, 131000)


def test_a_gpu_that_is_not_well_is_not_free_and_who_runs_keeps_what_he_has() -> None:
    node = gpu_node("x86-1", gpus=2, advertised=1, memory_mib=46068)
    train = pod("train", node="x86-1", limits={"nvidia.com/gpu": "2"})
    assert [gpu.use for gpu in _only_node(status_of(nodes=[node])).gpus] == ["free"]
    read = _only_node(status_of(nodes=[node], pods=[train]))
    assert ([gpu.use for gpu in read.gpus], read.other_pods) == (["whole", "whole"], ())


@pytest.mark.parametrize("unseen", [[Unseen(NODES, "refused")], []])
def test_a_pod_with_whole_gpus_is_told_of_a_node_that_nobody_knows(unseen: list[Unseen]) -> None:
    train = pod("train", node="x86-1", limits={"nvidia.com/gpu": "2"})
    node = _only_node(status_of(pods=[train], unseen=unseen))
    assert (node.gpus, [other_pod.name for other_pod in node.other_pods], node.has_gpus) == ((), ["train"], True)


def test_a_node_that_is_gone_is_named_so_with_its_pods_and_is_not_counted() -> None:
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g", node="old"), share("a", "g", node="old")])
    assert (status.summary.nodes, status.summary.gpu_nodes) == (1, 1)
    gone = status.nodes[-1]
    assert (gone.name, gone.ready.value, gone.ready.proof) == ("old", None, "Node old: is gone")
    assert [share.name for gpu in gone.gpus for share in gpu.shares] == ["a"]
