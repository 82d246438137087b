"""KAI's queues: promised, allowed, used."""

import pytest

from cluster.access.lists import Unseen
from cluster.snapshot import NODES, PODS
from sharing_map.report import Status
from testbed.shared_gpus import gpu_node, pod, queue, reservation, share, waiting
from tests.unit.sharing_map.clusters import status_of


def _with_queues(*queues: dict[str, object], pods: int = 4) -> Status:
    there = [reservation("g"), *(share(f"a-{index}", "g") for index in range(pods)), waiting("b")]
    return status_of(nodes=[gpu_node("jetson-1")], pods=there, queues=queues)


def test_a_queue_uses_what_its_pods_are_charged_and_its_parent_uses_it_too() -> None:
    status = _with_queues(queue("all"), queue("other", "all"), queue("robots", "all", quota=0.5, limit=2))
    by_name = {queue.name: queue for queue in status.queues}
    assert [(queue.name, queue.depth) for queue in status.queues] == [("all", 0), ("other", 1), ("robots", 1)]
    # 30000 of 131000 MiB are 0.2290 GPUs; KAI rounds each up to 0.23.
    assert {name: entry.used.value for name, entry in by_name.items()} == {"all": 0.92, "other": 0, "robots": 0.92}
    assert {name: (entry.pods, entry.pending) for name, entry in by_name.items()} == {
        "all": (4, 1),
        "other": (0, 0),
        "robots": (4, 1),
    }
    assert (by_name["robots"].quota.value, by_name["robots"].limit.value) == (0.5, 2)
    assert by_name["robots"].quota.proof == "Queue robots spec.resources.gpu.quota"


def test_what_the_queue_controller_says_stands_beside_it() -> None:
    [same] = _with_queues(queue("robots", used="920m")).queues
    assert (same.reported.value, same.difference) == (0.92, None)
    assert same.reported.proof == "Queue robots status.allocated[nvidia.com/gpu]"
    [silent] = _with_queues(queue("robots")).queues
    assert (silent.reported.value, silent.difference) == (None, None)


def test_a_difference_that_comes_from_rounding_is_named_so() -> None:
    [rounded] = _with_queues(queue("robots", used="0.9155")).queues
    assert rounded.difference is None, "too small to be said"
    [rounded] = _with_queues(queue("robots", used="0.89")).queues
    assert rounded.difference == (
        "The scheduler rounds each share up to hundredths of a GPU, the queue controller does not."
    )


def test_any_other_difference_says_which_is_more() -> None:
    [less] = _with_queues(queue("robots", used="0")).queues
    assert less.difference == "Its pods come to 0.92 GPUs more than the queue controller says: it may be behind."
    [more] = _with_queues(queue("robots", used="3")).queues
    assert more.difference == "The queue controller says 2.08 GPUs more than its pods come to: it may be behind."


def _two_devices(name: str) -> dict[str, object]:
    annotations = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}
    return pod(name, node="x86-1", annotations=annotations, labels={"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"})


def test_a_share_of_two_gpus_counts_once_for_the_queue_controller_and_mig_slices_never() -> None:
    """KAI v0.17.0 pkg/podgroupcontroller/controllers/resources: nothing is wrong there."""
    slices = pod("slices", node="x86-1", limits={"nvidia.com/mig-3g.20gb": "1"})
    pods = [_two_devices("a"), _two_devices("b"), slices]
    nodes = [gpu_node("x86-1", gpus=2, memory_mib=46068)]
    [row] = status_of(nodes=nodes, pods=pods, queues=[queue("robots", used="1")]).queues
    assert (row.used.value, row.reported.value, row.unexplained) == (5, 1, 0)
    assert row.difference == (
        "The queue controller counts a share of several GPUs once, and no MIG slices; the scheduler counts all."
    )
    [behind] = status_of(nodes=nodes, pods=pods, queues=[queue("robots", used="0")]).queues
    assert (behind.unexplained, behind.difference) == (
        1,
        "Its pods come to 1.00 GPUs more than the queue controller says: it may be behind.",
    )


def test_a_queue_controller_that_never_wrote_a_gpu_is_behind_where_pods_have_some() -> None:
    assert [row.unexplained for row in _with_queues(queue("robots")).queues] == [0.92]
    assert [row.unexplained for row in _with_queues(queue("robots"), pods=0).queues] == [0]


@pytest.mark.parametrize("what", [PODS, NODES])
def test_what_a_queue_uses_is_not_known_where_pods_or_nodes_could_not_be_read(what: str) -> None:
    pods = [] if what == PODS else [reservation("g"), share("a", "g")]
    unseen = [Unseen(what, "refused")]
    [row] = status_of(pods=pods, queues=[queue("robots", used="2")], unseen=unseen).queues
    assert (row.used.value, row.reported.value, row.difference, row.unexplained) == (None, 2, None, None)
    assert (row.pods, row.pending) == ((None, None) if what == PODS else (1, 0))


def test_whole_gpus_count_as_what_they_are() -> None:
    train = pod("train", node="x86-1", limits={"nvidia.com/gpu": "2"})
    status = status_of(nodes=[gpu_node("x86-1", gpus=2)], pods=[train], queues=[queue("robots")])
    assert [queue.used.value for queue in status.queues] == [2]


def test_a_pod_of_another_scheduler_uses_nothing_of_the_queue_that_its_label_names() -> None:
    """KAI groups, and so charges, its own pods alone (pkg/podgrouper)."""
    foreign = pod("train", limits={"nvidia.com/gpu": "1"})
    foreign["spec"]["schedulerName"] = "default-scheduler"
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[foreign], queues=[queue("robots")])
    assert [(queue.used.value, queue.pods) for queue in status.queues] == [(0, 0)]
    assert [share.queue for gpu in status.nodes[0].gpus for share in gpu.shares] == [None]


def test_queues_below_each_other_or_below_none_that_is_there_are_all_shown() -> None:
    status = _with_queues(queue("a", "b"), queue("b", "a"), queue("robots", "gone"))
    assert [(queue.name, queue.depth) for queue in status.queues] == [("robots", 0), ("a", 0), ("b", 1)]


def test_however_many_queues_stand_below_each_other_all_are_shown() -> None:
    """KAI's admission sets no bound."""
    status = _with_queues(queue("q0"), *(queue(f"q{depth}", f"q{depth - 1}") for depth in range(1, 2000)))
    assert [(queue.name, queue.depth) for queue in status.queues] == [(f"q{depth}", depth) for depth in range(2000)]
