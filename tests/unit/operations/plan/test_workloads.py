"""Files of pods: what is read of them, how KAI groups them, and what is refused."""

from fractions import Fraction
from typing import Any

import pytest
import yaml

from gpu_sharing.model import Node
from gpu_sharing.queues import Queue
from gpu_sharing.request import MemoryShare, PodRequest
from operations.errors import OperationError
from operations.plan.machines import Machine
from operations.plan.workloads import PodsOfFile, accepted, read_workloads

_LABELS = {"kubernetes.io/hostname": "a", "zone": "north"}
_MACHINES = (
    Machine(Node("a", 1000), 1000, _LABELS, all_labels=True),
    Machine(
        Node("b", 1000),
        1000,
        {"kubernetes.io/hostname": "b"},
        all_labels=True,
        taints=({"key": "gpu", "value": "only", "effect": "NoSchedule"},),
    ),
)
_QUEUES = (Queue("default-queue"),)


def _spec(**more: object) -> dict[str, Any]:
    return {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}], **more}


def _pod(name: str = "one", labels: dict[str, str] | None = None, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, "annotations": {"gpu-memory": "100"}},
        "spec": _spec(**spec),
    }


def _owner(kind: str, spec: dict[str, Any], **metadata: object) -> dict[str, Any]:
    template = {"metadata": {"annotations": {"gpu-memory": "100"}}, "spec": _spec()}
    return {"kind": kind, "metadata": {"name": "many", **metadata}, "spec": {"template": template, **spec}}


def _read(*documents: object, queues: tuple[Queue, ...] = _QUEUES) -> PodsOfFile:
    return read_workloads(yaml.safe_dump_all(documents), "pods.yaml", _MACHINES, queues)


def test_a_pod_is_a_workload_of_its_own_that_may_be_interrupted() -> None:
    [workload] = _read(_pod(tolerations=[{"operator": "Exists"}])).workloads
    [pod] = workload.pods
    assert (pod.name, pod.request, pod.may_run_on) == ("one", PodRequest(MemoryShare(100)), None)
    assert (workload.queue, workload.priority, workload.preemptible) == ("default-queue", 50, True)
    assert workload.min_member == 1


@pytest.mark.parametrize(
    ("kind", "spec", "pods"),
    [
        ("Deployment", {"replicas": 3}, 3),
        ("Deployment", {}, 1),
        ("ReplicaSet", {"replicas": 0}, 0),
        ("StatefulSet", {"replicas": 2}, 2),
        ("Job", {"parallelism": 4, "completions": 2}, 2),
        ("Job", {"parallelism": 4}, 4),
        ("Job", {"parallelism": 4, "suspend": True}, 0),
    ],
)
def test_what_makes_pods_is_one_workload(kind: str, spec: dict[str, Any], pods: int) -> None:
    [workload] = _read(_owner(kind, spec)).workloads
    assert [pod.name for pod in workload.pods] == [f"many-{number}" for number in range(1, pods + 1)]
    assert (workload.priority, workload.preemptible) == ((125, False) if kind == "Deployment" else (50, True))


def test_labels_and_annotations_say_queue_priority_and_gang() -> None:
    labels = {"kai.scheduler/queue": "team", "priorityClassName": "train"}
    annotations = {"kai.scheduler/min-member": "2"}
    [workload] = _read(_owner("Deployment", {"replicas": 3}, labels=labels, annotations=annotations)).workloads
    assert (workload.queue, workload.priority, workload.preemptible, workload.min_member) == ("team", 50, True, 2)
    [kept] = _read(_pod(labels={"kai.scheduler/preemptibility": "non-preemptible"})).workloads
    assert not kept.preemptible


def test_without_queues_none_is_kept_to() -> None:
    [workload] = _read(_pod(), queues=()).workloads
    assert workload.queue is None


def test_a_list_is_read_and_what_makes_no_pods_is_passed_over() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {}}
    items = {"apiVersion": "v1", "kind": "List", "items": [service, _pod("a")]}
    assert [workload.pods[0].name for workload in _read(items, _pod("b")).workloads] == ["a", "b"]


def test_other_namespaces_stand_before_the_name() -> None:
    pod = _pod()
    pod["metadata"]["namespace"] = "team"
    [workload] = _read(pod).workloads
    assert workload.pods[0].name == "team/one"


def test_requests_of_cores_and_memory_are_read() -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}}
    [workload] = _read(_pod(containers=[container])).workloads
    assert workload.pods[0].request == PodRequest(MemoryShare(100), Fraction(1, 2), Fraction(2**30))


def test_requests_of_the_pod_as_a_whole_are_read() -> None:
    [workload] = _read(_pod(resources={"requests": {"memory": "2Gi"}})).workloads
    assert workload.pods[0].request == PodRequest(MemoryShare(100), memory=Fraction(2**31))


def test_a_pod_of_another_scheduler_is_left_out_and_named() -> None:
    asked = _read(_pod(), _pod("other", schedulerName="default-scheduler"))
    assert len(asked.workloads) == 1
    assert asked.remarks == (
        "pods.yaml: Pod other is left out: its schedulerName is default-scheduler, not kai-scheduler.",
    )


def test_what_else_a_chart_has_is_nothing_to_plan() -> None:
    """A DaemonSet of another scheduler, and templates of no pods, once had the whole file refused."""
    usual = {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}
    repeated: list[object] = []
    for _ in range(100):
        repeated = [repeated, repeated]
    deep = "kind: Deep\nspec: " + "[" * 400 + "]" * 400
    documents = [
        _owner("DaemonSet", {"template": usual}),
        {"kind": "CronJob", "metadata": {"name": "x"}, "spec": {"jobTemplate": {"spec": {"template": usual}}}},
        {"kind": "SealedSecret", "metadata": {"name": "x"}, "spec": {"template": {"type": "Opaque"}}},
        {"kind": "Config", "metadata": {"name": "x"}, "spec": {"global": {"schedulerName": "kai-scheduler"}}},
        {"kind": "Repeated", "spec": repeated},
        _pod(),
    ]
    asked = read_workloads(f"{deep}\n---\n{yaml.safe_dump_all(documents)}", "pods.yaml", _MACHINES, _QUEUES)
    assert len(asked.workloads) == 1
    assert asked.remarks == ()


def test_what_is_not_looked_at_is_said() -> None:
    asked = _read(_pod(affinity={"nodeAffinity": {}}), _pod("two", priorityClassName="mine"))
    assert asked.remarks == (
        "pods.yaml: Pod one: its affinity is not looked at.",
        "pods.yaml: Pod two: PriorityClass mine is not one of KAI's, so train is taken, as KAI does without it.",
    )


def _annotated(value: object) -> dict[str, Any]:
    return _pod() | {"metadata": {"name": "x", "annotations": {"gpu-memory": value}}}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (_annotated(100), "metadata.annotations.gpu-memory: Input should be a valid string; found 100"),
        (_annotated("4Gi"), "gpu-memory is '4Gi'"),
        (_pod(containers=[]), "spec.containers: List should have at least 1 item"),
        (_owner("Deployment", {"replicas": -1}), "spec.replicas: Input should be greater than or equal to 0; found -1"),
        ({"kind": "Deployment", "metadata": {"name": "x"}}, "Deployment x: spec: Field required"),
        (_owner("Deployment", {"replicas": "3"}), "spec.replicas: Input should be a valid integer"),
        (_owner("DaemonSet", {}), "this kind can't be planned. Those that can: Pod, Deployment"),
        (
            {"kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": _spec()}}}}},
            "this kind can't be planned",
        ),
        *[
            (
                _owner("Job", {}, annotations={"kai.scheduler/min-member": minimum}),
                f"is '{minimum}': give a whole number",
            )
            for minimum in ("all", "0", "\u0662", "9" * 5000)
        ],
        ({"metadata": {}}, "an object without a kind without a name: kind: Field required"),
        ("text", "which is no Kubernetes object"),
        ({"kind": "List", "items": ["text"]}, "holds 'text', which is no Kubernetes object"),
        ({"kind": "List", "items": 5}, "holds 5, which is no Kubernetes object"),
        (
            _pod(containers=[{"name": "main", "resources": {"limits": ["1"]}}]),
            "resources.limits: Input should be a valid",
        ),
        (_pod(tolerations=[{"effect": ["NoSchedule"]}]), "tolerations.0.effect"),
    ],
)
def test_what_cant_be_planned_is_refused_with_its_place(document: object, why: str) -> None:
    with pytest.raises(OperationError) as caught:
        _read(document)
    assert str(caught.value).startswith("pods.yaml")
    assert why in str(caught.value)


def test_a_file_without_pods_is_refused() -> None:
    with pytest.raises(OperationError, match=r"pods.yaml has no pods for KAI\. Kinds that have: Pod"):
        _read({"kind": "Namespace", "metadata": {"name": "x"}})


_ALIASES = "l0: &l0 [x]\n" + "".join(
    f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]\n" for level in range(1, 20)
)
"""The last one holds 9 to the power of 19 texts, and takes no more room than the first."""


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ("kind: List\nitems: *l19", "which is no Kubernetes object"),
        ("kind: Pod\nspec: *l19", "spec: Input should be a valid dictionary"),
        ("kind: Pod\nspec: {containers: [{name: x, resources: {limits: {cpu: *l19}}}]}", "limits.cpu"),
        ("kind: Pod\nspec: {containers: [{name: x}], affinity: {x: *l19}}", "has no pods for KAI"),
        ("kind: Pod\nspec: {containers: [{name: x}], affinity: {x: *l19}, schedulerName: kai-scheduler}", None),
    ],
)
def test_what_aliases_repeat_without_end_is_not_written_out(there: str, why: str | None) -> None:
    text = f"{_ALIASES}{there}\n"
    if why is None:
        assert len(read_workloads(text, "pods.yaml", _MACHINES, ()).workloads) == 1
        return
    with pytest.raises(OperationError) as caught:
        read_workloads(text, "pods.yaml", _MACHINES, ())
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text",
    [
        *("a: [", "a: 2026-13-01", "a: !!bool maybe", "a: !!int ''", "a: !!timestamp today"),
        *(f"kind: {'1' * 5000}", f"kind: 0x{'f' * 5000}", "a: " + "[" * 3000),
    ],
)
def test_a_file_that_is_no_yaml_is_refused(text: str) -> None:
    with pytest.raises(OperationError, match=r"pods.yaml is not YAML") as caught:
        read_workloads(text, "pods.yaml", _MACHINES, ())
    assert "unicode string" not in str(caught.value), "a person wrote a file"


@pytest.mark.parametrize(
    ("selector", "tolerations", "names"),
    [
        ({}, [{"key": "gpu", "operator": "Exists"}], None),
        ({}, [{"key": "gpu", "value": "only", "effect": "NoSchedule"}], None),
        ({}, [], frozenset({"a"})),
        ({}, [{"key": "gpu", "value": "other"}], frozenset({"a"})),
        ({}, [{"key": "gpu", "value": "only", "effect": "NoExecute"}], frozenset({"a"})),
        ({"zone": "north"}, [{"operator": "Exists"}], frozenset({"a"})),
        ({"zone": "south"}, [], frozenset()),
        ({"gone": "x"}, [], frozenset()),
    ],
)
def test_a_pod_accepts_nodes_by_labels_and_taints(
    selector: dict[str, str], tolerations: list[dict[str, str]], names: frozenset[str] | None
) -> None:
    assert accepted(selector, tolerations, _MACHINES) == (names, [])


def test_labels_that_are_not_known_keep_no_pod_away() -> None:
    machines = (Machine(Node("a", 1000), 1000, {"known": "yes"}),)
    assert accepted({"known": "yes", "zone": "north"}, (), machines) == (None, ["zone"])
    assert accepted({"known": "no"}, (), machines) == (frozenset(), [])


def test_a_taint_that_only_prefers_keeps_no_pod_away() -> None:
    machines = (Machine(Node("a", 1000), 1000, taints=({"key": "k", "effect": "PreferNoSchedule"},)),)
    assert accepted({}, (), machines) == (None, [])
