"""KAI's queues: promised, allowed, used."""

from sharing_map.report import Status
from testbed.shared_gpus import gpu_node, pod, queue, reservation, share, waiting
from tests.unit.sharing_map.clusters import status_of


def _with_queues(*queues: dict[str, object], pods: int = 4) -> Status:
    there = [reservation("g"), *(share(f"a-{index}", "g") for index in range(pods)), waiting("b")]
    return status_of(nodes=[gpu_node("jetson-1")], pods=there, queues=queues)


def test_a_queue_uses_what_its_pods_are_charged_and_its_parent_uses_it_too() -> None:
    status = _with_queues(queue("all"), queue("other", "all"), queue("robots", "all", quota=0.5, limit=2))
    told = {each.name: each for each in status.queues}
    assert [(each.name, each.depth) for each in status.queues] == [("all", 0), ("other", 1), ("robots", 1)]
    # 30000 of 131000 MiB are 0.2290 GPUs; KAI rounds each up to 0.23.
    assert {name: each.used.value for name, each in told.items()} == {"all": 0.92, "other": 0, "robots": 0.92}
    assert {name: (each.pods, each.pending) for name, each in told.items()} == {
        "all": (4, 1),
        "other": (0, 0),
        "robots": (4, 1),
    }
    assert (told["robots"].quota.value, told["robots"].limit.value) == (0.5, 2)
    assert told["robots"].quota.proof == "Queue robots spec.resources.gpu.quota"


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


def test_whole_gpus_count_as_what_they_are() -> None:
    train = pod("train", node="x86-1", limits={"nvidia.com/gpu": "2"})
    status = status_of(nodes=[gpu_node("x86-1", gpus=2)], pods=[train], queues=[queue("robots")])
    assert [each.used.value for each in status.queues] == [2]


def test_a_pod_of_another_scheduler_uses_nothing_of_the_queue_that_its_label_names() -> None:
    """KAI groups, and so charges, its own pods alone (pkg/podgrouper)."""
    foreign = pod("train", limits={"nvidia.com/gpu": "1"})
    foreign["spec"]["schedulerName"] = "default-scheduler"
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[foreign], queues=[queue("robots")])
    assert [(each.used.value, each.pods) for each in status.queues] == [(0, 0)]
    assert [each.queue for gpu in status.nodes[0].gpus for each in gpu.shares] == [None]


def test_queues_below_each_other_or_below_none_that_is_there_are_all_shown() -> None:
    status = _with_queues(queue("a", "b"), queue("b", "a"), queue("robots", "gone"))
    assert [(each.name, each.depth) for each in status.queues] == [("robots", 0), ("a", 0), ("b", 1)]
