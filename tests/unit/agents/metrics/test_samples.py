"""What Prometheus is told of a cluster, in the text that it reads."""

import math
from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agents.metrics import samples
from agents.metrics.reader import Reader
from cluster.access.lists import Unseen
from sharing_map.report import Status
from testbed.shared_gpus import Manifest, gpu_node, pod, queue, reservation, share, waiting
from tests.unit.sharing_map.clusters import status_of

_MIB = 1024 * 1024
_CREATED = 1793527200
"""2026-11-01T10:00:00Z."""


def values_of(status: Status) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """The samples by name, each by its labels' values in the order of their names."""
    reader = Reader(lambda: status, 30, registry=CollectorRegistry())
    reader.look()
    families = text_string_to_metric_families(generate_latest(reader.registry).decode())
    return {
        family.name: {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value for sample in family.samples
        }
        for family in families
    }


def ours(status: Status) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """Those of the cluster alone."""
    return {
        name: values
        for name, values in values_of(status).items()
        if name.startswith("kai_anywhere_") and not name.startswith("kai_anywhere_exporter_")
    }


def test_a_jetson_with_two_pods_is_told_in_bytes() -> None:
    pods = [reservation("g"), share("a", "g"), share("b", "g", mib=20000)]
    said = ours(status_of(nodes=[gpu_node("jetson-1")], pods=pods, queues=[queue("robots", quota=1, used="0.39")]))
    # Labels in the order of their names: architecture, node, platform, sharing.
    assert said["kai_anywhere_node_info"] == {("arm64", "jetson-1", "tegra", "kai"): 1}
    assert said["kai_anywhere_node_gpus"] == {("jetson-1",): 1}
    assert said["kai_anywhere_node_gpus_in_use"] == {("jetson-1",): 1}
    assert said["kai_anywhere_node_gpu_memory_bytes"] == {("jetson-1",): 131000 * _MIB}
    assert said["kai_anywhere_node_gpu_memory_allocated_bytes"] == {("jetson-1",): 50000 * _MIB}
    assert said["kai_anywhere_node_gpu_memory_free_bytes"] == {("jetson-1",): 81000 * _MIB}
    assert said["kai_anywhere_node_gpu_memory_largest_free_bytes"] == {("jetson-1",): 81000 * _MIB}
    assert said["kai_anywhere_gpu_group_memory_bytes"] == {("g", "jetson-1"): 131000 * _MIB}
    assert said["kai_anywhere_gpu_group_memory_allocated_bytes"] == {("g", "jetson-1"): 50000 * _MIB}
    assert said["kai_anywhere_gpu_group_memory_free_bytes"] == {("g", "jetson-1"): 81000 * _MIB}
    assert said["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 2}
    assert said["kai_anywhere_gpu_group_reservation_answered"] == {("g", "jetson-1"): 1}
    assert said["kai_anywhere_gpu_group_info"] == {("GPU-1111", "g", "jetson-1"): 1}
    # gpu_group, namespace, node, pod, queue.
    assert said["kai_anywhere_pod_gpu_memory_bytes"] == {
        ("g", "robots", "jetson-1", "a", "robots"): 30000 * _MIB,
        ("g", "robots", "jetson-1", "b", "robots"): 20000 * _MIB,
    }
    assert said["kai_anywhere_pod_gpus"] == {
        ("robots", "jetson-1", "a", "robots"): 0.23,
        ("robots", "jetson-1", "b", "robots"): 0.16,
    }
    assert said["kai_anywhere_queue_allocated_gpus"] == said["kai_anywhere_queue_reported_gpus"] == {("robots",): 0.39}
    assert said["kai_anywhere_queue_quota_gpus"] == {("robots",): 1}
    assert said["kai_anywhere_queue_limit_gpus"] == {("robots",): math.inf}
    assert said["kai_anywhere_queue_info"] == {("", "robots"): 1}
    assert said["kai_anywhere_queue_pods"] == {("robots",): 2}
    assert said["kai_anywhere_node_remarks"] == {("jetson-1",): 0}
    assert said["kai_anywhere_pods_pending"] == said["kai_anywhere_unreadable"] == {}
    assert said["kai_anywhere_pods_left_out"] == {(): 0}


def test_what_is_told_is_what_status_says() -> None:
    """Of a cluster with everything in it, sums agree with the summary of `kai-anywhere status`."""
    sliced = gpu_node(
        "x86-2", gpus=2, advertised=8, memory_mib=46068, labels={"kai.scheduler/node-pool": "time-slicing"}
    )
    nodes = [gpu_node("jetson-1"), gpu_node("x86-1", gpus=3, memory_mib=46068), sliced, gpu_node("bare", gpus=0)]
    pods = [
        *(reservation("g"), share("a", "g"), share("b", "g", mib=20000)),
        pod("train", node="x86-1", limits={"nvidia.com/gpu": "2"}),
        pod("sliced", node="x86-2", limits={"nvidia.com/gpu": "1"}),
        waiting("c"),
    ]
    status = status_of(nodes=nodes, pods=pods)
    said, summary = ours(status), status.summary
    assert summary.taken_mib
    assert summary.shared_mib
    assert sum(said["kai_anywhere_node_gpu_memory_bytes"].values()) == summary.shared_mib * _MIB
    assert sum(said["kai_anywhere_node_gpu_memory_allocated_bytes"].values()) == summary.taken_mib * _MIB
    assert sum(said["kai_anywhere_node_gpu_memory_free_bytes"].values()) == (summary.free_mib or 0) * _MIB
    assert sum(said["kai_anywhere_node_gpus"].values()) == summary.gpus
    assert len(said["kai_anywhere_pod_gpus"]) == summary.shares
    assert sum(said["kai_anywhere_pods_pending"].values()) == summary.pending
    assert ("bare",) not in said["kai_anywhere_node_gpus"], "a node without a GPU says nothing"
    assert ("x86-2",) not in said["kai_anywhere_node_gpu_memory_bytes"], "nothing keeps account of it there"


def test_memory_of_a_node_that_kai_does_not_share_is_neither_free_nor_allocated_whoever_has_some_of_it() -> None:
    """As `kai-anywhere status` counts: a share from before its time was sliced, and all of what MIG takes for a GPU."""
    sliced = gpu_node("x86-1", gpus=2, advertised=8, memory_mib=46068)
    mig = gpu_node("x86-2", gpus=2, memory_mib=46068, labels={"nvidia.com/mig.strategy": "single"})
    mig["metadata"]["labels"]["node-role.kubernetes.io/mig-enabled"] = "true"
    pods = [
        *(reservation("g", node="x86-1"), share("a", "g", node="x86-1", mib=20000)),
        pod("train", node="x86-2", limits={"nvidia.com/gpu": "1"}),
    ]
    status = status_of(nodes=[sliced, mig], pods=pods)
    said = ours(status)
    assert (status.summary.taken_mib, status.summary.free_mib, status.summary.largest_free_mib) == (0, 0, 0)
    for name in ("allocated", "free", "largest_free"):
        assert said[f"kai_anywhere_node_gpu_memory_{name}_bytes"] == {}, name
    assert said["kai_anywhere_node_gpus_in_use"] == {("x86-1",): 1, ("x86-2",): 1}
    assert said["kai_anywhere_gpu_group_memory_free_bytes"] == {("g", "x86-1"): 26000 * _MIB}


def test_nothing_is_free_on_a_node_that_takes_no_pods() -> None:
    """As the summary of `kai-anywhere status` says it."""
    cordoned = gpu_node("jetson-2", memory_mib=262144)
    cordoned["spec"]["unschedulable"] = True
    pooled = gpu_node("jetson-3", memory_mib=262144, labels={"kai.scheduler/node-pool": "p"})
    status = status_of(nodes=[gpu_node("jetson-1"), cordoned, pooled], pods=[reservation("g"), share("a", "g")])
    said = ours(status)
    assert (status.summary.free_mib, status.summary.largest_free_mib) == (101000, 101000)
    for name in ("free", "largest_free"):
        assert said[f"kai_anywhere_node_gpu_memory_{name}_bytes"] == {
            ("jetson-1",): 101000 * _MIB,
            ("jetson-2",): 0,
            ("jetson-3",): 0,
        }


def test_a_pod_with_two_whole_gpus_is_one_pod() -> None:
    train = pod("train", node="x86-1", limits={"nvidia.com/gpu": "2"})
    said = ours(status_of(nodes=[gpu_node("x86-1", gpus=3, memory_mib=46068)], pods=[train]))
    assert said["kai_anywhere_pod_gpus"] == {("robots", "x86-1", "train", "robots"): 2}
    assert said["kai_anywhere_pod_gpu_memory_bytes"] == {}
    assert said["kai_anywhere_node_gpus_in_use"] == {("x86-1",): 2}


def test_a_pod_on_two_groups_is_charged_once() -> None:
    two = pod(
        "two",
        node="x86-1",
        annotations={"gpu-memory": "10000", "gpu-fraction-num-devices": "2"},
        labels={"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"},
    )
    pods = [reservation("a", node="x86-1", uuid="GPU-a"), reservation("b", node="x86-1", uuid="GPU-b"), two]
    said = ours(status_of(nodes=[gpu_node("x86-1", gpus=3, memory_mib=46068)], pods=pods))
    assert [labels[0] for labels in said["kai_anywhere_pod_gpu_memory_bytes"]] == ["a", "b"]
    assert len(said["kai_anywhere_pod_gpus"]) == 1


def test_more_than_there_is_is_less_than_nothing_in_the_group_and_nothing_on_the_node() -> None:
    pods = [reservation("g"), share("a", "g", mib=100000), share("b", "g", mib=100000)]
    said = ours(status_of(nodes=[gpu_node("jetson-1")], pods=pods))
    assert said["kai_anywhere_gpu_group_memory_free_bytes"] == {("g", "jetson-1"): -69000 * _MIB}
    assert said["kai_anywhere_node_gpu_memory_free_bytes"] == {("jetson-1",): 0}


@pytest.mark.parametrize("held", [[], [reservation("g", uuid=None)]])
def test_a_reservation_pod_that_is_missing_or_silent_is_a_zero(held: list[Manifest]) -> None:
    pods = [*held, share("a", "g")]
    said = ours(status_of(nodes=[gpu_node("jetson-1")], pods=pods))
    assert said["kai_anywhere_gpu_group_reservation_answered"] == {("g", "jetson-1"): 0}
    assert said["kai_anywhere_gpu_group_info"] == {}
    evicted = ours(status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g", phase="Failed"), share("a", "g")]))
    assert evicted["kai_anywhere_gpu_group_reservation_answered"] == {("g", "jetson-1"): 0}


def test_pods_that_wait_are_counted_by_whom_they_wait_for() -> None:
    starting = share("starting", "g", phase="Pending")
    silent = waiting("silent", message="")
    silent["status"]["conditions"][0] |= {"reason": "", "message": ""}
    unbound = waiting("unbound")
    request = {
        "metadata": {"name": "unbound-x", "namespace": "robots"},
        "spec": {"podName": "unbound", "selectedNode": "jetson-1"},
        "status": {"phase": "Failed", "reason": "no reservation pod", "failedAttempts": 3},
    }
    status = status_of(
        nodes=[gpu_node("jetson-1")],
        pods=[reservation("g"), starting, silent, unbound, waiting("full"), waiting("fuller")],
        bind_requests=[request],
        queues=[queue("robots")],
    )
    said = ours(status)
    assert said["kai_anywhere_pods_pending"] == {
        ("robots", "binder"): 1,
        ("robots", "node"): 1,
        ("robots", "nobody"): 1,
        ("robots", "scheduler"): 2,
    }
    since = said["kai_anywhere_pod_pending_since_timestamp_seconds"]
    assert since[("robots", "full", "robots", "scheduler")] == _CREATED
    assert len(since) == 5


def test_a_pod_with_scheduling_gates_waits_for_whoever_gave_them() -> None:
    gated = waiting("gated")
    gated["status"]["conditions"][0] |= {"reason": "SchedulingGated", "message": "Scheduling is blocked"}
    said = ours(status_of(nodes=[gpu_node("jetson-1")], pods=[gated, waiting("full")]))
    assert said["kai_anywhere_pods_pending"] == {("", "gate"): 1, ("", "scheduler"): 1}


def test_pods_that_name_queues_of_their_own_making_are_counted_together() -> None:
    pods = [waiting(f"waiting-{number}") for number in range(9)]
    for pod_of_tenant in pods[1:]:
        pod_of_tenant["metadata"]["labels"]["kai.scheduler/queue"] = pod_of_tenant["metadata"]["name"]
    said = ours(status_of(nodes=[gpu_node("jetson-1")], pods=pods, queues=[queue("robots")]))
    assert said["kai_anywhere_pods_pending"] == {("robots", "scheduler"): 1, ("", "scheduler"): 8}


def test_nothing_is_called_free_or_waiting_where_pods_could_not_be_read() -> None:
    said = ours(status_of(nodes=[gpu_node("jetson-1")], unseen=[Unseen("pods", "refused")]))
    assert said["kai_anywhere_unreadable"] == {("pods",): 1}
    for name in ("node_gpu_memory_allocated_bytes", "node_gpu_memory_free_bytes", "node_gpus_in_use"):
        assert said[f"kai_anywhere_{name}"] == {}, name
    assert "kai_anywhere_pods_pending" not in said
    assert said["kai_anywhere_node_gpu_memory_bytes"] == {("jetson-1",): 131000 * _MIB}


@pytest.mark.parametrize("unseen", [[Unseen("nodes", "refused")], []])
def test_of_a_node_that_is_gone_or_may_not_be_read_there_are_its_pods_alone(unseen: list[Unseen]) -> None:
    said = ours(status_of(pods=[reservation("g"), share("a", "g")], unseen=unseen))
    assert {name for name, values in said.items() if "_node_" in name and values} == set()
    assert said["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 1}


def test_without_a_memory_label_no_memory_is_made_up() -> None:
    said = ours(status_of(nodes=[gpu_node("jetson-1", memory_mib=None)], pods=[reservation("g"), share("a", "g")]))
    assert said["kai_anywhere_node_gpus"] == {("jetson-1",): 1}
    for name, values in said.items():
        assert "memory" not in name or not values or name == "kai_anywhere_pod_gpu_memory_bytes", name


def test_pods_beyond_the_most_are_counted_and_have_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST_PODS", 2)
    pods = [reservation("g"), *(share(name, "g", mib=1000) for name in "abc"), *(waiting(name) for name in "defg")]
    said = ours(status_of(nodes=[gpu_node("jetson-1")], pods=pods))
    assert len(said["kai_anywhere_pod_gpu_memory_bytes"]) == len(said["kai_anywhere_pod_gpus"]) == 2
    assert len(said["kai_anywhere_pod_pending_since_timestamp_seconds"]) == 2
    assert sum(said["kai_anywhere_pods_pending"].values()) == 4
    assert said["kai_anywhere_pods_left_out"] == {(): 1 + 2}
    assert said["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 3}


def test_names_that_somebody_chose_can_not_break_the_text() -> None:
    nasty = 'a"}\n evil{x="1"} 1'
    request = queue(nasty)
    said = ours(status_of(queues=[request]))
    assert said["kai_anywhere_queue_info"] == {("", nasty): 1}
    assert "evil" not in said


def test_every_name_has_its_unit_and_its_help() -> None:
    for metric in samples.metrics(status_of(nodes=[gpu_node("jetson-1")])):
        assert metric.documentation
        assert not metric.documentation.endswith(".")
        if "memory" in metric.name:
            assert metric.name.endswith("_bytes")
