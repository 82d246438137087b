"""The map on a terminal."""

import io
from datetime import timedelta

from rich.console import Console

from cluster.access.lists import Unseen
from cluster.snapshot import NODES
from operations.status.page import page
from operations.status.text import bar, lines
from operations.status.words import age
from sharing_map.report import Gpu, Share, Status
from testbed.shared_gpus import gpu_node, pod, queue, reservation, share, waiting
from testbed.stacks import ROOT
from tests.support.docs import blocks
from tests.unit.sharing_map.clusters import TAKEN, status_of


def _printed(status: Status, width: int = 100) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False)
    for line in lines(status, width):
        console.print(line)
    return out.getvalue()


def _busy() -> Status:
    return status_of(
        nodes=[gpu_node("jetson-1"), gpu_node("cpu-1", gpus=0, memory_mib=None)],
        pods=[reservation("g"), *(share(f"arm-{index}", "g") for index in range(4)), waiting("arm-4")],
        queues=[queue("robots", quota=1)],
    )


def test_the_map_says_who_has_what_what_is_free_and_what_waits() -> None:
    printed = _printed(_busy())
    assert "120,000 MiB are taken, 11,000 MiB are free; one more pod can get 11,000 MiB at most." in printed
    assert "[#####======#####======..] 120000 of 131000 MiB taken, 11000 free" in printed
    assert "GPU-1111, told by gpu-reservation-" in printed
    assert "robots/arm-0  30000 MiB  running 2d, queue robots  (metadata.annotations[gpu-memory])" in printed
    assert "KAI shares 131000 MiB of each GPU (metadata.labels[nvidia.com/gpu.memory]: 131072 2d)" in printed
    assert "no node has the GPU memory (Pod robots/arm-4 status.conditions[PodScheduled], 2d)" in printed
    assert "Without GPUs: cpu-1." in printed
    assert "QUEUES, in GPUs" in printed


def test_the_example_of_the_guide_is_what_is_printed() -> None:
    status = status_of(
        nodes=[gpu_node("jetson-1")],
        pods=[reservation("g"), *(share(f"arm-{index}", "g") for index in range(4)), waiting("arm-4")],
        queues=[queue("robots", quota=1, used="0.92")],
    )
    [example] = [block.text for block in blocks(ROOT / "docs" / "status.md", "text")]
    assert _printed(status, 120) == example


def test_a_pod_whose_container_ends_again_and_again_is_called_what_kubectl_calls_it() -> None:
    held, without_uuid, user = reservation("g", uuid=None), reservation("h"), share("a", "g")
    for crashes in (held, without_uuid, user):
        waits = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}
        crashes["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": waits}}]
    status = status_of(nodes=[gpu_node("jetson-1", gpus=2)], pods=[held, without_uuid, user, share("b", "h")])
    printed = _printed(status, 120)
    name = held["metadata"]["name"]
    assert f"GPU not answered yet by {name} (CrashLoopBackOff: back-off 5m0s); group g" in printed
    assert f"GPU-1111, told by {without_uuid['metadata']['name']} 2d, now CrashLoopBackOff; group h" in printed
    assert "robots/a  30000 MiB  CrashLoopBackOff, queue robots" in printed
    assert "robots/b  30000 MiB  running 2d, queue robots" in printed
    html = page(status)
    assert f"GPU group g: {name} has not answered yet (CrashLoopBackOff: back-off 5m0s): " in html
    assert "GPU group h is GPU-1111, and its reservation pod is CrashLoopBackOff now: " in html
    assert "<td>CrashLoopBackOff<div" in html


def test_a_pod_of_which_its_node_tells_no_more_is_called_what_kubectl_calls_it() -> None:
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), share("a", "g", phase="Unknown")])
    assert "robots/a  30000 MiB  Unknown, queue robots" in _printed(status, 120)
    assert "<td>Unknown<div" in page(status)


def test_a_node_says_what_pods_must_tolerate_to_be_placed_there() -> None:
    tainted, cordoned = gpu_node("jetson-1"), gpu_node("jetson-2")
    tainted["spec"]["taints"] = [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "lab", "effect": "PreferNoSchedule"},
    ]
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned["spec"] |= {"unschedulable": True, "taints": [unschedulable]}
    status = status_of(nodes=[tainted, cordoned, gpu_node("jetson-3")])
    assert [node.taints.value for node in status.nodes] == [
        ("nvidia.com/gpu=present:NoSchedule",),
        ("node.kubernetes.io/unschedulable:NoSchedule",),
        (),
    ]
    printed, shown = _printed(status, 150), str(page(status))
    assert printed.count("for pods that tolerate") == 1, "CORDONED says it of the other one"
    assert "ready 2d, for pods that tolerate nvidia.com/gpu=present:NoSchedule, 1 GPU" in printed
    assert shown.count("tainted") == 1
    assert "nvidia.com/gpu=present:NoSchedule" in shown


def test_a_node_pool_stands_at_its_node_and_in_the_sum() -> None:
    pooled = gpu_node("jetson-1", labels={"kai.scheduler/node-pool": "b\x1b"})
    printed = _printed(status_of(nodes=[pooled]), 120)
    assert "node pool 'b '" in printed
    assert "0 MiB are free, 131,000 MiB on nodes that take no pods, or those of a node pool alone" in printed


def test_pods_with_claims_of_dra_are_named_where_there_are_some_and_only_there() -> None:
    claiming = pod("p")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert "1 pod with DRA claims (resource.k8s.io): GPUs among these are not counted." in _printed(
        status_of(nodes=[gpu_node("jetson-1")], pods=[claiming])
    )
    assert "DRA" not in _printed(_busy())


def test_what_is_not_there_has_no_heading() -> None:
    printed = _printed(status_of(nodes=[gpu_node("jetson-1")]))
    assert "131000 MiB free" in printed
    for absent in ("PENDING", "QUEUES", "Without GPUs", "!"):
        assert absent not in printed


def test_no_line_is_wider_than_the_terminal() -> None:
    long = waiting("a-pod-with-a-name-that-is-long", message="node " * 60)
    status = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), share("a" * 120, "g"), long])
    assert max(map(len, _printed(status, 60).splitlines())) <= 60


def test_nothing_of_the_cluster_can_write_to_the_terminal() -> None:
    printed = _printed(status_of(pods=[waiting("a", message="\x1b[2Jgone\r\nnext \u202eline [red]x[/red]")]))
    assert "\x1b" not in printed
    assert "\r" not in printed
    assert "\u202e" not in printed
    assert "[2Jgone  next  line [red]x[/red]" in printed or "[2Jgone next line [red]x[/red]" in printed


def test_pods_that_could_not_be_read_leave_nothing_to_be_called_free() -> None:
    printed = _printed(status_of(nodes=[gpu_node("jetson-1")], unseen=[Unseen("pods", "refused")]))
    assert "Pods could not be read: what is free and what is Pending is not known." in printed
    assert " MiB free" not in printed


def test_nodes_that_could_not_be_read_are_not_counted_as_none() -> None:
    status = status_of(pods=[reservation("g"), share("a", "g")], unseen=[Unseen(NODES, "refused")])
    summary = status.summary
    assert (summary.nodes, summary.gpus, summary.shared_mib, summary.taken_mib, summary.free_mib) == (None,) * 5
    assert (summary.gpu_nodes, summary.largest_free_mib, summary.shares) == (None, None, 1)
    printed = _printed(status)
    assert "Nodes could not be read: which GPUs there are, and what of them is free, is not known." in printed
    assert "1 pod with GPUs, 0 Pending." in printed
    for absent in ("0 nodes", "1 node", "physical", "MiB are free"):
        assert absent not in printed


def test_of_a_node_that_is_gone_no_number_is_said() -> None:
    train = pod("train", node="old", limits={"nvidia.com/gpu": "1"})
    pods = [reservation("g", node="old"), share("a", "g", node="old"), train]
    printed = _printed(status_of(nodes=[gpu_node("jetson-1")], pods=pods))
    assert "old  is gone\n  what it says of itself is not known\n" in printed
    assert "Pods whose GPU is not known:\n    robots/train  1 GPU  running 2d, queue robots" in printed


def test_in_a_narrow_terminal_what_is_taken_and_free_stands_below_its_bar() -> None:
    assert "  [#####======#####======..] 120000 of 131000 MiB taken, 11000 free\n" in _printed(_busy(), 67)
    narrow = _printed(_busy(), 40)
    assert "  [#####======#####======..]\n    120000 of 131000 MiB taken, 11000\n    free\n" in narrow
    assert max(map(len, narrow.splitlines())) <= 40


def test_a_long_name_leaves_a_narrow_terminal_its_numbers() -> None:
    long = "a-team-with-a-long-name-and-a-queue-of-its-own"
    shares = [share("a", "g"), share(f"{long}-6f8d9c7b5-x2k9q", "g")]
    queues = [queue("robots", used="3"), queue(long, "robots")]
    printed = _printed(status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), *shares], queues=queues), 64)
    assert "    robots/a               30000 MiB  running 2d, queue robots" in printed
    assert printed.splitlines()[-5:] == [
        "QUEUES, in GPUs      QUOTA  LIMIT   USED KAI SAYS  PODS  PENDING",
        "robots                 all    all   0.46        3     2        0",
        "    The queue controller says 2.54 GPUs more than its pods come",
        "    to: it may be behind.",
        "  a-team-with-a-l…     all    all      0        -     0        0",
    ]


def test_every_queue_of_a_deep_tree_has_a_name_in_a_narrow_terminal() -> None:
    names = [f"q-{depth}" for depth in range(20)]
    queues = [queue(name, parent) for name, parent in zip(names, ["", *names], strict=False)]
    status = status_of(nodes=[gpu_node("jetson-1")], queues=queues)
    narrow = _printed(status, 80).splitlines()[-20:]
    assert [line.split()[0] for line in narrow] == names
    assert max(map(len, narrow)) <= 80
    assert f"\n{' ' * 38}q-19 " in _printed(status, 200), "where there is room, it stands as deep as it is"


def test_a_pod_whose_reason_nobody_says_is_not_passed_over() -> None:
    silent = pod("a", node=None, annotations={"gpu-memory": "1"}, phase="Pending")
    assert "Nothing says why yet." in _printed(status_of(pods=[silent]))


def _gpu(*mib: int, total: int | None = 100) -> Gpu:
    made = status_of(nodes=[gpu_node("jetson-1")], pods=[share("a", "g")]).nodes[0].gpus[0].shares[0]
    shares: tuple[Share, ...] = tuple(made.model_copy(update={"mib": mib_of_one}) for mib_of_one in mib)
    taken = sum(mib)
    free = None if total is None else total - taken
    return Gpu(
        use="shared", group="g", reservation=None, total_mib=total, taken_mib=taken, free_mib=free, shares=shares
    )


def test_a_bar_is_as_long_as_what_it_stands_for() -> None:
    assert bar(_gpu(50, 25), 8) == "####==.."
    assert bar(_gpu(), 8) == "........"
    assert bar(_gpu(100), 8) == "########"
    assert bar(_gpu(80, 80), 8) == "!!!!!!!!"
    assert bar(_gpu(10**18, 10**139), 8) == "!!!!!!!!"
    assert bar(_gpu(10, total=None), 8) == "--------"


def test_ages_are_said_in_the_largest_unit_of_which_there_are_two() -> None:
    def since(**ago: int) -> str:

        return age(TAKEN, TAKEN - timedelta(**ago))

    assert (since(seconds=90), since(minutes=90), since(hours=47), since(hours=48)) == ("90s", "90m", "47h", "2d")
    assert age(TAKEN, None) == ""
    assert since(seconds=-5) == "0s", "clocks differ"
