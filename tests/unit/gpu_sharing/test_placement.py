"""Who runs where: what was seen of KAI, facts of its source, and what holds for every workload."""

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_sharing.model import MigStrategy, Node, Packing, Pod, Reason, Strategy, Why, Workload
from gpu_sharing.nearest import nearest
from gpu_sharing.node import NodeState
from gpu_sharing.placement import place
from gpu_sharing.queues import UNLIMITED, Queue
from gpu_sharing.request import (
    ComputeMode,
    FractionShare,
    GpuRequest,
    GpuShare,
    MemoryShare,
    MigSlices,
    PodRequest,
    WholeGpus,
)

_JETSON = Node("jetson", 131000, 1, 1)


def _pods(request: GpuRequest | None, count: int = 1, name: str = "pod", **of_workload: object) -> list[Workload]:
    pods = [Pod(f"{name}-{number}", PodRequest(request)) for number in range(count)]
    return [Workload((pod,), **of_workload) for pod in pods]  # type: ignore[arg-type]


def _gang(request: GpuRequest, count: int, min_member: int, name: str = "pod") -> Workload:
    pods = tuple(Pod(f"{name}-{number}", PodRequest(request)) for number in range(count))
    return Workload(pods, min_member=min_member)


def _counts(packing: Packing) -> tuple[int, int]:
    return len(packing.placed), len(packing.pending)


def _on_gpus(packing: Packing) -> list[int]:
    return [len(gpu.shares) for use in packing.nodes for gpu in use.gpus if gpu.shares]


def test_nodes_are_asked_once_for_pods_that_ask_for_the_same_and_find_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster of thousands of nodes thousands of pods may wait: each of them asked every node."""
    asked, why_not = [], NodeState.why_not

    def counted(state: NodeState, pod: Pod, kind: int) -> Why | None:
        asked.append(state.node.name)
        return why_not(state, pod, kind)

    monkeypatch.setattr(NodeState, "why_not", counted)
    nodes = [Node(f"n{number}", 131000, 1, 1) for number in range(20)]
    packing = place(nodes, [*_pods(MemoryShare(140000), 100), *_pods(MemoryShare(1), 1, "small")])
    assert _counts(packing) == (1, 100)
    assert len({unplaced.why for unplaced in packing.pending}) == 1
    assert len(asked) < 20 * 10


@pytest.mark.parametrize(
    ("node", "mib", "pods", "running", "on_gpus"),
    [
        (Node("n", 131000, 1, 1), 30720, 5, 4, [4]),
        (Node("n", 131000, 1, 1), 30000, 5, 4, [4]),
        (Node("n", 131000, 1, 1), 32768, 5, 3, [3]),
        (Node("n", 131000, 1, 1), 32750, 5, 4, [4]),
        (Node("n", 122500, 1, 1), 30720, 5, 3, [3]),
        (Node("n", 131000, 4, 1), 30720, 5, 5, [4, 1]),
        (Node("n", 131000, 100, 1), 30720, 5, 5, [4, 1]),
        (Node("n", 131000, 4, 1), 30720, 20, 16, [4, 4, 4, 4]),
        (Node("n", 131000, 4), 30720, 5, 5, [4, 1]),
    ],
)
def test_it_is_what_kais_own_scheduler_did(node: Node, mib: int, pods: int, running: int, on_gpus: list[int]) -> None:
    """Seen with KAI v0.17.0's allocate action and test session; the last four are nodes with time slicing."""
    packing = place([node], _pods(MemoryShare(mib), pods))
    assert _counts(packing) == (running, pods - running)
    assert _on_gpus(packing) == on_gpus


def test_a_quarter_by_fraction_runs_four_times() -> None:
    assert _counts(place([_JETSON], _pods(FractionShare(0.25), 5))) == (4, 1)


def test_a_pending_pod_says_what_is_left() -> None:
    [pending] = place([_JETSON], _pods(MemoryShare(30720), 5)).pending
    assert (pending.pod.name, pending.why.reason) == ("pod-4", Reason.GPU_MEMORY)
    assert pending.why.text == "It asks for 30720 MiB; jetson has at most 8120 MiB left on a GPU."


@pytest.mark.parametrize(
    ("gpus", "left"), [(2, "at most 10000 MiB left on 2 GPUs"), (1, "has 1 GPUs, and it asks for 2")]
)
def test_a_pending_pod_of_two_gpus_says_what_both_have_left(gpus: int, left: str) -> None:
    """Not what the one with more has."""
    old = [Pod(f"old-{mib}", PodRequest(MemoryShare(mib)), node="n", groups=(str(mib),)) for mib in (5000, 90000)]
    used = [Workload((pod,)) for pod in old[:gpus]]
    [pending] = place([Node("n", 100000, gpus, gpus)], [*used, *_pods(MemoryShare(20000, 2))]).pending
    assert left in pending.why.text


def test_more_than_a_gpu_has_stays_pending_but_kai_takes_whole_multiples_for_one_gpu() -> None:
    [pending] = place([_JETSON], _pods(MemoryShare(131001))).pending
    assert pending.why.reason is Reason.LARGER_THAN_A_GPU
    packing = place([_JETSON], _pods(MemoryShare(2 * 131000)))
    assert packing.nodes[0].gpus[0].free_mib == -131000


def test_without_a_memory_label_memory_waits_and_fractions_run() -> None:
    unlabelled = Node("n", None)
    [pending] = place([unlabelled], _pods(MemoryShare(1))).pending
    assert pending.why.reason is Reason.NO_MEMORY_LABEL
    assert _counts(place([unlabelled], _pods(FractionShare(0.5), 3))) == (2, 1)


def test_binpack_fills_one_gpu_and_spread_takes_idle_ones() -> None:
    node = Node("n", 40000, 2, 2)
    assert _on_gpus(place([node], _pods(MemoryShare(10000), 4))) == [4]
    assert _on_gpus(place([node], _pods(MemoryShare(10000), 4), strategy=Strategy.SPREAD)) == [2, 2]


def test_binpack_takes_the_fullest_gpu_with_room() -> None:
    first, second = _pods(MemoryShare(60), 1, "a"), _pods(MemoryShare(50), 1, "b")
    packing = place([Node("n", 100, 2, 2)], [*first, *second, *_pods(MemoryShare(40), 1, "c")])
    assert [gpu.shares for gpu in packing.nodes[0].gpus] == [(("a-0", 60), ("c-0", 40)), (("b-0", 50),)]


def test_binpack_takes_the_node_whose_gpu_is_shared_already() -> None:
    nodes = [Node("a", 1000, 1, 1), Node("b", 1000, 2, 2)]
    running = Workload((Pod("old", PodRequest(MemoryShare(100)), node="b", groups=("g",)),))
    packing = place(nodes, [running, *_pods(MemoryShare(100))])
    assert {placed.pod.name: (placed.node, placed.groups) for placed in packing.placed} == {
        "old": ("b", ("g",)),
        "pod-0": ("b", ("g",)),
    }


def test_several_devices_are_different_gpus_of_one_node() -> None:
    nodes = [Node("a", 1000, 1, 1), Node("b", 1000, 2, 2)]
    packing = place(nodes, _pods(MemoryShare(600, devices=2), 2))
    [placed], [pending] = packing.placed, packing.pending
    assert (placed.node, len(set(placed.groups))) == ("b", 2)
    assert pending.why.reason is Reason.GPU_MEMORY
    [too_many] = place(nodes, _pods(MemoryShare(1, devices=3))).pending
    assert too_many.why.reason is Reason.DEVICES


def test_different_compute_modes_never_share_a_gpu() -> None:
    slicing, sharing = MemoryShare(10), MemoryShare(10, mode=ComputeMode.SM_SHARING)
    packing = place([_JETSON], [*_pods(slicing), *_pods(sharing, name="other")])
    [pending] = packing.pending
    assert (pending.pod.name, pending.why.reason) == ("other-0", Reason.GPU_MEMORY)
    assert "another compute mode" in pending.why.text


def test_a_whole_gpu_is_one_that_nobody_shares() -> None:
    packing = place([Node("n", 1000, 2, 2)], [*_pods(MemoryShare(10)), *_pods(WholeGpus(1), 2, "whole")])
    [pending] = packing.pending
    assert (pending.pod.name, pending.why.reason) == ("whole-1", Reason.WHOLE_GPUS)
    assert [gpu.whole for gpu in packing.nodes[0].gpus] == [None, "whole-0"]


def test_a_pod_that_names_its_node_and_asks_for_a_billion_gpus_takes_no_memory_of_the_plan() -> None:
    greedy = Workload((Pod("greedy", PodRequest(WholeGpus(1_000_000_000)), node="jetson"),))
    [use] = place([_JETSON], [greedy]).nodes
    assert [gpu.whole for gpu in use.gpus] == ["greedy"]


def test_a_share_on_a_node_that_lost_its_memory_is_counted_as_nothing() -> None:
    running = Workload((Pod("a", PodRequest(MemoryShare(100)), node="n", groups=("g",)),), queue="q")
    packing = place([Node("n", 0, 1, 1)], [running, *_pods(MemoryShare(100), queue="q")], [Queue("q")])
    assert _counts(packing) == (1, 1)


def test_mig_nodes_give_no_fractions() -> None:
    single = Node("single", 1000, 2, 2, {}, MigStrategy.SINGLE)
    mixed = Node("mixed", 1000, 0, 1, {"nvidia.com/mig-1g.5gb": 2}, MigStrategy.MIXED)
    slices = MigSlices((("nvidia.com/mig-1g.5gb", 1),))
    for node in (single, mixed):
        [pending] = place([node], _pods(FractionShare(0.1))).pending
        assert pending.why.reason is Reason.MIG_NODE
    assert _counts(place([single], _pods(WholeGpus(1), 3))) == (2, 1)
    [pending] = place([single], _pods(slices)).pending
    assert pending.why.reason is Reason.MIG_NODE
    packing = place([mixed], _pods(slices, 3))
    assert _counts(packing) == (2, 1)
    assert packing.pending[0].why.reason is Reason.NO_MIG_SLICES
    assert place([mixed], _pods(WholeGpus(1))).pending[0].why.reason is Reason.MIG_NODE


def test_a_mig_node_without_a_strategy_takes_everything() -> None:
    node = Node("n", 1000, 1, 1, {"nvidia.com/mig-1g.5gb": 1}, MigStrategy.NONE)
    slices = MigSlices((("nvidia.com/mig-1g.5gb", 1),))
    assert not place([node], [*_pods(slices), *_pods(FractionShare(0.5), 1, "share")]).pending


def test_slices_wait_on_a_node_without_any() -> None:
    [pending] = place([_JETSON], _pods(MigSlices((("nvidia.com/mig-1g.5gb", 1),)))).pending
    assert pending.why.reason is Reason.NO_MIG_SLICES


def test_a_gang_runs_whole_or_not_at_all() -> None:
    packing = place([_JETSON], [_gang(MemoryShare(30720), 5, 5), *_pods(MemoryShare(100000), 1, "late")])
    assert [placed.pod.name for placed in packing.placed] == ["late-0"]
    assert {pending.why.reason for pending in packing.pending} == {Reason.GANG}
    assert "Only 1 of the 5 pods" in packing.pending[0].why.text
    assert _counts(place([_JETSON], [_gang(MemoryShare(30720), 5, 4)])) == (4, 1)


def test_a_gang_gets_the_room_that_others_leave_it() -> None:
    """Alone, it takes the small GPU first, whose part is too much for its queue; KAI did the same."""
    nodes = [Node("a", 33700, 1, 1), Node("b", 116100, 2, 2)]
    share, queues = MemoryShare(23221), [Queue("team", quota=(0.72, UNLIMITED, UNLIMITED))]

    def group(name: str, count: int, **more: object) -> Workload:
        pods = tuple(Pod(f"{name}-{number}", PodRequest(share)) for number in range(count))
        return Workload(pods, "team", min_member=count, **more)  # type: ignore[arg-type]

    kept = group("kept", 3, priority=125, preemptible=False)
    packing = place(nodes, [group("first", 3), group("second", 1), kept], queues)
    assert not packing.pending
    assert [placed.node for placed in packing.placed if placed.pod.name.startswith("kept")] == ["b", "b", "b"]
    assert len(place(nodes, [kept], queues).pending) == 3


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_gang_without_room_leaves_everything_as_if_it_had_never_asked(strategy: Strategy) -> None:
    nodes = [Node(f"n{number}", 131000, 2, 2) for number in range(4)]
    shares: list[GpuRequest] = [FractionShare(0.5), WholeGpus(1), MemoryShare(30000)]
    others = [workload for index, share in enumerate(shares) for workload in _pods(share, 2, f"pod{index}")]
    # Enough for each gang and for the others, but not for what one would leave behind beside them.
    quota = (10.0, UNLIMITED, UNLIMITED)
    queues = [Queue("top", quota=quota), Queue("team", "top", quota=quota)]
    theirs = [Workload(workload.pods, "team", preemptible=False) for workload in others]
    gangs = [
        Workload(_gang(share, count, count).pods, "team", priority=125, min_member=count, preemptible=False)
        for share, count in zip(shares, (17, 9, 33), strict=True)
    ]
    packing, alone = (place(nodes, workloads, queues, strategy) for workloads in ([*gangs, *theirs], theirs))
    assert (packing.placed, packing.nodes) == (alone.placed, alone.nodes)
    assert _counts(packing) == (6, 59)


def test_a_gang_keeps_only_the_nodes_that_it_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster of thousands of nodes a copy for each gang took minutes."""
    kept, copied = [], NodeState.copy

    def counted(state: NodeState) -> NodeState:
        kept.append(state.node.name)
        return copied(state)

    monkeypatch.setattr(NodeState, "copy", counted)
    nodes = [Node(f"n{number:02}", 131000, 1, 1) for number in range(50)]
    gangs = [_gang(MemoryShare(60000), 4, 4, f"gang{number}") for number in range(3)]
    assert _counts(place(nodes, gangs)) == (12, 0)
    assert len(kept) == 6, "two pods on each node"


def test_a_gang_with_too_few_pods_waits() -> None:
    [pending] = place([_JETSON], [_gang(MemoryShare(1), 1, 2)]).pending
    assert pending.why.text == "Its workload runs with 2 pods or none, and has 1."


def test_the_higher_priority_is_served_first() -> None:
    low, high = _pods(MemoryShare(100000), 1, "low"), _pods(MemoryShare(100000), 1, "high", priority=125)
    packing = place([_JETSON], [*low, *high])
    assert [placed.pod.name for placed in packing.placed] == ["high-0"]


def test_every_workload_gets_what_it_needs_before_any_gets_more() -> None:
    packing = place([_JETSON], [_gang(MemoryShare(60000), 2, 1, "one"), _gang(MemoryShare(60000), 2, 1, "two")])
    assert [placed.pod.name for placed in packing.placed] == ["one-0", "two-0"]


def test_a_pod_runs_only_where_it_may() -> None:
    pod = Pod("picky", PodRequest(MemoryShare(1)), may_run_on=frozenset({"other"}))
    [pending] = place([_JETSON], [Workload((pod,))]).pending
    assert pending.why.reason is Reason.NODE_SELECTION


def test_cores_and_memory_count_where_they_are_known() -> None:
    node = Node("n", 1000, 1, 1, cpu=Fraction(1), memory=Fraction(2**30))
    hungry = Pod("hungry", PodRequest(MemoryShare(1), cpu=Fraction(3, 2)))
    large = Pod("large", PodRequest(MemoryShare(1), memory=Fraction(2**31)))
    reasons = [pending.why.reason for pending in place([node], [Workload((hungry,)), Workload((large,))]).pending]
    assert reasons == [Reason.CPU, Reason.MEMORY]
    assert not place([_JETSON], [Workload((hungry,)), Workload((large,))]).pending


def test_nothing_fits_on_no_nodes() -> None:
    assert place([], _pods(MemoryShare(1))).pending[0].why.reason is Reason.NO_NODES
    assert place([Node("cpu", None, 0)], _pods(MemoryShare(1))).pending[0].why.reason is Reason.NO_GPU


_TEAM = Queue("team", "all", limit=(0.5, UNLIMITED, UNLIMITED))
_ALL = Queue("all")


def test_a_queue_keeps_to_its_limit_in_portions_that_are_rounded_up() -> None:
    packing = place([_JETSON], _pods(MemoryShare(31440), 3, queue="team"), [_TEAM, _ALL])
    assert _counts(packing) == (2, 1)
    assert packing.pending[0].why.reason is Reason.QUEUE_LIMIT
    assert _counts(place([_JETSON], _pods(MemoryShare(32751), 3, queue="team"), [_TEAM, _ALL])) == (1, 2)


def test_the_limit_of_a_queue_above_counts_too() -> None:
    above = Queue("all", limit=(0.25, UNLIMITED, UNLIMITED))
    [pending] = place([_JETSON], _pods(FractionShare(0.2), 2, queue="team"), [Queue("team", "all"), above]).pending
    assert "Queue 'all' uses 0.2 of 0.25 GPUs" in pending.why.text


def test_what_may_not_be_interrupted_keeps_to_the_quota() -> None:
    queues = [Queue("team", "all", quota=(0.3, 0, 0)), Queue("all", quota=(1, 0, 0))]
    for_good = _pods(FractionShare(0.2), 2, queue="team", preemptible=False, priority=125)
    packing = place([_JETSON], for_good, queues)
    assert _counts(packing) == (1, 1)
    assert packing.pending[0].why.reason is Reason.QUEUE_QUOTA
    assert not place([_JETSON], _pods(FractionShare(0.2), 2, queue="team"), queues).pending


@pytest.mark.parametrize("parents", [("gone", "gone"), ("b", "a"), ("a", "b")])
def test_a_queue_whose_parent_is_missing_or_below_itself_is_none(parents: tuple[str, str]) -> None:
    queues = [Queue(name, parent) for name, parent in zip("ab", parents, strict=True)]
    queues += [Queue("c", "a"), Queue("d", "b"), Queue("top"), Queue("well", "top")]
    running = Workload((Pod("old", PodRequest(MemoryShare(100)), node=_JETSON.name, groups=("g",)),), queue="a")
    waiting = [Workload((Pod(f"in-{name}", PodRequest(MemoryShare(100))),), queue=name) for name in ("a", "c", "d")]
    well = Workload((Pod("in-well", PodRequest(MemoryShare(100))),), queue="well")
    packing = place([_JETSON], [running, *waiting, well], queues)
    assert {pending.why.reason for pending in packing.pending} == {Reason.QUEUE_UNKNOWN}
    assert [placed.pod.name for placed in packing.placed] == ["old", "in-well"]


def test_however_many_queues_stand_below_each_other_pods_of_the_lowest_run() -> None:
    """KAI's admission sets no bound. The pods of two queues ask whose turn it is."""
    queues = [Queue(f"q{depth}", f"q{depth - 1}" if depth else None) for depth in range(2000)]
    pods = [*_pods(MemoryShare(100), 2, queue="q1999"), *_pods(MemoryShare(100), 2, "beside", queue="beside")]
    packing = place([_JETSON], pods, [*queues, Queue("beside", "q1000")])
    assert _counts(packing) == (4, 0)


def test_who_runs_on_a_node_that_kai_does_not_use_still_counts_in_his_queue() -> None:
    away = Workload((Pod("away", PodRequest(WholeGpus(1)), node="gone"),), "team")
    queues = [Queue("team", limit=(1.25, UNLIMITED, UNLIMITED))]
    packing = place([_JETSON], [away, *_pods(FractionShare(0.2), 2, queue="team")], queues)
    assert [placed.pod.name for placed in packing.placed] == ["pod-0"]
    assert packing.pending[0].why.reason is Reason.QUEUE_LIMIT


def test_cores_and_memory_of_a_queue_are_told_in_their_units() -> None:
    request = PodRequest(MemoryShare(1), cpu=Fraction(1, 2), memory=Fraction(4 * 2**30))
    workload = Workload((Pod("pod", request),), "team", priority=125, preemptible=False)
    for quota, reason in (((1, 0, 0), "0 of 0 cores and would get 0.5 more"), ((1, 1000, 0), "0 of 0 MiB of memory")):
        [pending] = place([_JETSON], [workload], [Queue("team", quota=quota)]).pending
        assert reason in pending.why.text


def test_pods_go_to_leaf_queues_that_are_there() -> None:
    packing = place(
        [_JETSON], [*_pods(MemoryShare(1), queue="gone"), *_pods(MemoryShare(1), queue="all")], [_TEAM, _ALL]
    )
    assert [pending.why.reason for pending in packing.pending] == [Reason.QUEUE_UNKNOWN, Reason.QUEUE_NOT_A_LEAF]


def test_the_queue_below_its_quota_is_served_first_and_then_in_turns() -> None:
    queues = [Queue("promised", "all", quota=(0.5, 0, 0)), Queue("poor", "all"), _ALL]
    asked = [
        *_pods(FractionShare(0.25), 4, "poor", queue="poor"),
        *_pods(FractionShare(0.25), 4, "promised", queue="promised"),
    ]
    packing = place([_JETSON], asked, queues)
    assert [placed.pod.name for placed in packing.placed[:2]] == ["promised-0", "promised-1"]
    assert _counts(packing) == (4, 4)


def test_the_queue_with_the_higher_priority_is_served_first() -> None:
    queues = [Queue("late", priority=50), Queue("urgent", priority=200)]
    asked = [
        *_pods(FractionShare(0.9), 1, "late", queue="late"),
        *_pods(FractionShare(0.9), 1, "urgent", queue="urgent"),
    ]
    assert [placed.pod.name for placed in place([_JETSON], asked, queues).placed] == ["urgent-0"]


_NODES = st.lists(
    st.builds(lambda hundreds, gpus: (hundreds * 100, gpus), st.integers(10, 1310), st.integers(1, 3)),
    min_size=1,
    max_size=3,
).map(lambda pair: [Node(f"node-{index}", mib, gpus, gpus) for index, (mib, gpus) in enumerate(pair)])
_SHARES: st.SearchStrategy[GpuShare] = st.one_of(
    st.builds(MemoryShare, st.integers(1, 131000), st.integers(1, 2)),
    st.builds(FractionShare, st.integers(1, 99).map(lambda hundredths: hundredths / 100), st.integers(1, 2)),
)
_STRATEGIES = st.sampled_from(Strategy)


def _workloads(shares: Sequence[GpuRequest]) -> list[Workload]:
    return [Workload((Pod(f"pod-{index}", PodRequest(share)),)) for index, share in enumerate(shares)]


@given(_NODES, st.lists(_SHARES, max_size=12), _STRATEGIES)
def test_no_gpu_gives_more_than_it_has_but_for_whole_multiples(
    nodes: list[Node], shares: list[GpuShare], strategy: Strategy
) -> None:
    packing = place(nodes, _workloads(shares), strategy=strategy)
    for use in packing.nodes:
        assert len(use.gpus) == use.node.gpus
        for gpu in use.gpus:
            assert gpu.free_mib >= 0 or len(gpu.shares) == 1
    decided = [item.pod.name for item in packing.placed] + [item.pod.name for item in packing.pending]
    assert sorted(decided) == sorted(f"pod-{index}" for index in range(len(shares)))


@given(_NODES, st.lists(_SHARES, max_size=12), _STRATEGIES)
def test_a_pod_that_waits_has_room_nowhere(nodes: list[Node], shares: list[GpuShare], strategy: Strategy) -> None:
    packing = place(nodes, _workloads(shares), strategy=strategy)
    there = [Workload((placed_pod,)) for placed_pod in _as_running(packing)]
    again = place(nodes, [*there, *(Workload((item.pod,)) for item in packing.pending)], strategy=strategy)
    assert len(again.pending) == len(packing.pending)


def _as_running(packing: Packing) -> list[Pod]:
    return [Pod(item.pod.name, item.pod.request, node=item.node, groups=item.groups) for item in packing.placed]


@given(_NODES, _SHARES, st.integers(1, 12), _STRATEGIES, st.randoms())
def test_the_order_of_equal_pods_does_not_matter(
    nodes: list[Node], share: GpuShare, count: int, strategy: Strategy, random: Random
) -> None:
    asked = _workloads([share] * count)
    mixed = list(asked)
    random.shuffle(mixed)
    shuffled_nodes = list(nodes)
    random.shuffle(shuffled_nodes)
    one, other = place(nodes, asked, strategy=strategy), place(shuffled_nodes, mixed, strategy=strategy)
    assert _counts(one) == _counts(other)
    assert sorted(item.node for item in one.placed) == sorted(item.node for item in other.placed)


@given(_NODES, st.integers(2, 131000), st.integers(1, 12), _STRATEGIES)
def test_who_asks_for_less_is_never_worse_off(nodes: list[Node], mib: int, count: int, strategy: Strategy) -> None:
    largest = max(node.shared_mib or 0 for node in nodes)
    asked = min(mib, largest)
    more = place(nodes, _workloads([MemoryShare(asked)] * count), strategy=strategy)
    less = place(nodes, _workloads([MemoryShare(asked - 1)] * count if asked > 1 else []), strategy=strategy)
    assert asked <= 1 or len(less.placed) >= len(more.placed)


@given(_NODES, _SHARES, st.integers(1, 12), _STRATEGIES)
def test_the_nearest_request_fits_and_one_step_more_does_not(
    nodes: list[Node], share: GpuShare, count: int, strategy: Strategy
) -> None:
    def runs(smaller: GpuShare) -> bool:
        return not place(nodes, _workloads([smaller] * count), strategy=strategy).pending

    if runs(share):
        return
    answer = nearest(share, runs)
    match answer:
        case None:
            least = (
                MemoryShare(1, share.devices) if isinstance(share, MemoryShare) else FractionShare(0.001, share.devices)
            )
            assert not runs(least)
        case MemoryShare(mib, devices):
            assert runs(answer)
            assert not runs(MemoryShare(mib + 1, devices))
        case FractionShare(fraction, devices):
            assert runs(answer)
            assert not runs(FractionShare(min((round(fraction * 1000) + 1) / 1000, share.fraction), devices))  # type: ignore[union-attr]


def test_the_nearest_to_an_exact_quarter_of_128_gib() -> None:
    def runs(share: GpuShare) -> bool:
        return not place([_JETSON], _pods(share, 4)).pending

    assert nearest(MemoryShare(32768), runs) == MemoryShare(32750)
    assert nearest(FractionShare(0.3), runs) == FractionShare(0.25)
    assert nearest(MemoryShare(5), lambda _: False) is None
