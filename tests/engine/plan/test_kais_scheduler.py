"""What `plan` foretells is what KAI's real scheduler decides: random workloads, on a real API server.

The scheduler alone runs, with its action `allocate` alone, and nothing binds: a BindRequest is its decision. Its
program is `scheduler` of the folder KAI_PROGRAMS, its CustomResourceDefinitions are in the chart of the same version,
KAI_CHART (docs/simulator.md).
"""

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from gpu_sharing.arithmetic import shared_mib
from gpu_sharing.model import Node, Packing, Pod, Strategy, Workload
from gpu_sharing.placement import place
from gpu_sharing.queues import UNLIMITED, Queue
from gpu_sharing.request import FractionShare, GpuRequest, MemoryShare, PodRequest, WholeGpus
from simulator.nodes import SIMULATED
from simulator.ports import free_ports
from testbed.simulated import kill
from testbed.waiting import eventually

_SCHEDULER = Path(os.environ.get("KAI_PROGRAMS", "/nowhere")) / "scheduler"
_CHART = Path(os.environ.get("KAI_CHART", "/nowhere"))
_MISSING = [
    what
    for what, there in (
        ("KAI_PROGRAMS with KAI's scheduler", _SCHEDULER.is_file()),
        ("KAI_CHART with KAI's chart of the same version", (_CHART / "crds").is_dir()),
    )
    if not there
]

pytestmark = [
    pytest.mark.skipif(bool(_MISSING), reason=f"needs {' and '.join(_MISSING)} (docs/simulator.md)"),
]

_GROUP = "/apis/scheduling.run.ai"
_PODS = "/api/v1/namespaces/default/pods"
_POD_GROUPS = f"{_GROUP}/v2alpha2/namespaces/default/podgroups"
_BIND_REQUESTS = f"{_GROUP}/v1alpha2/namespaces/default/bindrequests"
_QUEUES = f"{_GROUP}/v2/queues"
_PRIORITIES = {"train": 50, "inference": 125}
_ROUNDS, _WORKLOADS = 5, 20
_RIVALRIES = 20
_MOST_GROUPS = 9
_PERIOD_SECONDS = 0.5
"""From one round of the scheduler to the next."""


@dataclass(frozen=True)
class _Asked:
    """A random PodGroup of equal pods."""

    name: str
    request: GpuRequest
    queue: str
    priority: str
    count: int
    min_member: int

    @property
    def pods(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.count)]


@dataclass(frozen=True)
class _Case:
    """A random set of PodGroups with its nodes and its queues."""

    name: str
    nodes: tuple[Node, ...]
    groups: tuple[_Asked, ...]
    queues: tuple[Queue, ...]

    def foretold(self, strategy: Strategy) -> Packing:
        workloads = [
            Workload(
                tuple(Pod(pod, PodRequest(asked.request)) for pod in asked.pods),
                asked.queue,
                priority=_PRIORITIES[asked.priority],
                preemptible=asked.priority == "train",
                min_member=asked.min_member,
            )
            for asked in self.groups
        ]
        return place(self.nodes, workloads, self.queues, strategy)


def _case(name: str, chance: random.Random, rivals: int = 1) -> _Case:
    mib = chance.choice([8192, 24576, 46068, 81559, 122543, 131072, chance.randint(200, 140000)])
    nodes = []
    for index in range(chance.randint(1, 3)):
        label = mib if chance.random() < 0.7 else chance.randint(200, 140000)
        gpus = chance.randint(1, 3)
        # Some labels disagree with what the device plugin advertises, as with time slicing.
        count = gpus if chance.random() < 0.8 else chance.randint(1, 3)
        nodes.append(Node(f"{name}-node-{index}", shared_mib(label), gpus, count))
    largest = max(node.shared_mib or 0 for node in nodes)

    def request() -> GpuRequest:
        devices = 1 if chance.random() < 0.8 else 2
        match chance.randint(0, 9):
            case 0:
                return WholeGpus(chance.randint(1, 2))
            case 1 | 2 | 3:
                return FractionShare(chance.choice([0.25, 0.5, 0.33, chance.randint(1, 99) / 100]), devices)
            case 4:
                return MemoryShare(chance.randint(1, 2 * largest), devices)
            case _:
                return MemoryShare(max(largest // chance.randint(1, 6) + chance.choice([-1, 0, 1, 72]), 1), devices)

    uniform = chance.random() < 0.4
    first, count = request(), chance.randint(1, _MOST_GROUPS)
    queues = [Queue(f"{name}-all", quota=(UNLIMITED,) * 3)]
    for index in range(rivals):
        limit = UNLIMITED if chance.random() < 0.6 else chance.randint(1, 300) / 100
        quota = min(chance.choice([0, chance.randint(0, 200) / 100]), 100 if limit == UNLIMITED else limit)
        queues.append(
            Queue(
                f"{name}-{index}",
                f"{name}-all",
                chance.choice([100, 100, 200]) if rivals > 1 else 100,
                quota=(quota, UNLIMITED, UNLIMITED),
                limit=(limit, UNLIMITED, UNLIMITED),
                weight=(chance.choice([0, 1, 1, 3]), 1, 1),
            )
        )
    groups = []
    for index in range(count):
        members = 1 if chance.random() < 0.7 else chance.randint(2, 4)
        groups.append(
            _Asked(
                f"{name}-{index:02}",
                first if uniform else request(),
                chance.choice(queues[1:]).name,
                "train" if chance.random() < 0.8 else "inference",
                members,
                1 if chance.random() < 0.5 else members,
            )
        )
    return _Case(name, tuple(nodes), tuple(groups), tuple(queues))


def _node_manifest(node: Node, case: str) -> dict[str, Any]:
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(node.gpus)}
    labels = {"case": case, "nvidia.com/gpu.memory": str(node.shared_mib), "nvidia.com/gpu.count": str(node.gpu_count)}
    return {
        "metadata": {"name": node.name, "labels": labels, "annotations": dict([SIMULATED])},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _pod_manifest(case: _Case, asked: _Asked, name: str) -> dict[str, Any]:
    annotations = {"pod-group-name": asked.name}
    resources: dict[str, Any] = {}
    match asked.request:
        case WholeGpus(count):
            resources = {"limits": {"nvidia.com/gpu": str(count)}}
        case MemoryShare(mib, devices):
            annotations |= {"gpu-memory": str(mib), "gpu-fraction-num-devices": str(devices)}
        case FractionShare(fraction, devices):
            annotations |= {"gpu-fraction": f"{fraction:g}", "gpu-fraction-num-devices": str(devices)}
        case _:
            pass
    return {
        "metadata": {"name": name, "annotations": annotations, "labels": {"kai.scheduler/queue": asked.queue}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "nodeSelector": {"case": case.name},
            "containers": [{"name": "main", "image": "example.com/none", "resources": resources}],
        },
    }


def _queue_manifest(queue: Queue) -> dict[str, Any]:
    amounts = {
        resource: {
            "quota": queue.quota[index],
            "limit": queue.limit[index],
            "overQuotaWeight": queue.weight[index],
        }
        for index, resource in enumerate(("gpu", "cpu", "memory"))
    }
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": queue.name},
        "spec": {"resources": amounts, "parentQueue": queue.parent or "", "priority": queue.priority},
    }


def _create(api: httpx2.Client, path: str, manifest: dict[str, Any]) -> None:
    response = api.post(path, json=manifest)
    assert response.is_success, response.text


@pytest.fixture(scope="module")
def crds(cluster: simulator.ControlPlane, api: httpx2.Client) -> None:
    """KAI's kinds, and the PriorityClasses of its chart; GPUs are what the nodes say, not what a device plugin does."""
    kill(cluster, "operands")
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted((_CHART / "crds").glob("*.yaml")):
        _create(api, definitions, yaml.safe_load(file.read_text(encoding="utf-8")))
    for name, value in _PRIORITIES.items():
        _create(api, "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    for path in (_QUEUES, _POD_GROUPS, _BIND_REQUESTS):
        eventually(lambda path=path: api.get(path).is_success, within_seconds=60)  # type: ignore[misc]


@contextmanager
def _scheduler(control_plane: simulator.ControlPlane, strategy: Strategy, folder: Path) -> Iterator[None]:
    """KAI's scheduler, as its operator configures it."""
    sharing = ["gpusharingorder", "gpupack"] if strategy is Strategy.BINPACK else ["gpuspread"]
    plugins: list[dict[str, Any]] = [
        {"name": name}
        for name in ("predicates", "proportion", "priority", "elastic", "nodeavailability", "resourcetype", "taskorder")
    ]
    plugins += [{"name": name} for name in sharing]
    plugins.append({"name": "nodeplacement", "arguments": {"cpu": strategy.value, "gpu": strategy.value}})
    configuration = folder / "scheduler.yaml"
    configuration.write_text(yaml.safe_dump({"actions": "allocate", "tiers": [{"plugins": plugins}]}), encoding="utf-8")
    listen, extensions = free_ports(2)
    with (folder / "scheduler.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [
                str(_SCHEDULER),
                f"--scheduler-conf={configuration}",
                f"--listen-address=127.0.0.1:{listen}",
                f"--plugin-server-port={extensions}",
                f"--schedule-period={_PERIOD_SECONDS}s",
                "--qps=500",
                "--burst=1000",
            ],
            env=os.environ | {"KUBECONFIG": str(control_plane.kubeconfig)},
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _items(api: httpx2.Client, path: str) -> list[dict[str, Any]]:
    response = api.get(path)
    response.raise_for_status()
    items: list[dict[str, Any]] = response.json()["items"]
    return items


def _undecided(api: httpx2.Client) -> set[str]:
    bound = {item["spec"]["podName"] for item in _items(api, _BIND_REQUESTS)}
    waiting = {
        item["metadata"]["name"]
        for item in _items(api, _PODS)
        if any(
            condition["type"] == "PodScheduled" and condition["status"] == "False"
            for condition in item["status"].get("conditions") or ()
        )
    }
    return {item["metadata"]["name"] for item in _items(api, _PODS)} - bound - waiting


def _decided(api: httpx2.Client) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Node and GPU groups of every pod that KAI placed."""
    return {
        item["spec"]["podName"]: (item["spec"]["selectedNode"], tuple(item["spec"].get("selectedGPUGroups") or ()))
        for item in _items(api, _BIND_REQUESTS)
    }


def _at_the_end(api: httpx2.Client) -> dict[str, tuple[str, tuple[str, ...]]]:
    """What KAI decided once it decides nothing more: what waited gets room from what came after it, a round later."""
    decided: dict[str, tuple[str, tuple[str, ...]]] = {}
    while decided != (now := _decided(api)):
        decided = now
        time.sleep(4 * _PERIOD_SECONDS)
    return decided


def _clear(api: httpx2.Client) -> None:
    now = {"gracePeriodSeconds": 0}
    for path in (_PODS, _POD_GROUPS, _BIND_REQUESTS, _QUEUES, "/api/v1/nodes"):
        api.request("DELETE", path, json=now, params={"labelSelector": "!keep"}).raise_for_status()
    for path in (_PODS, _POD_GROUPS, _BIND_REQUESTS, _QUEUES):
        eventually(lambda path=path: not _items(api, path), within_seconds=60)  # type: ignore[misc]


def _nodes(pods: Mapping[str, tuple[str, tuple[str, ...]]]) -> Counter[tuple[str, str]]:
    """How many pods of each PodGroup are on each node; they are equal."""
    return Counter((pod.rpartition("-")[0], node) for pod, (node, _) in pods.items())


def _fill(case: _Case, pods: Mapping[str, tuple[str, tuple[str, ...]]]) -> Counter[tuple[str, int]]:
    """How full the GPU groups of each node are; of GPUs that are equally full KAI takes any."""
    nodes = {node.name: node.shared_mib or 0 for node in case.nodes}
    requests = {pod: asked.request for asked in case.groups for pod in asked.pods}
    used: Counter[tuple[str, str]] = Counter()
    for pod, (node, groups) in pods.items():
        for group in groups:
            match requests[pod]:
                case MemoryShare(mib):
                    used[node, group] += mib
                case FractionShare(fraction):
                    used[node, group] += int(fraction * nodes[node])
                case _:
                    pass
    return Counter((node, mib) for (node, _), mib in used.items())


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("seed", range(_ROUNDS))
def test_a_plan_is_what_kais_scheduler_decides(
    cluster: simulator.ControlPlane, api: httpx2.Client, tmp_path: Path, strategy: Strategy, seed: int
) -> None:
    chance = random.Random(f"{seed} {strategy}")  # noqa: S311 - the same workloads in every run
    cases = [_case(f"case-{seed}-{index:02}", chance) for index in range(_WORKLOADS)]
    differences = _differences(cluster, api, tmp_path, strategy, cases)
    assert not differences, f"{len(differences)} of {_WORKLOADS}: {pformat(differences[:2], width=200)}"


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("seed", range(_RIVALRIES))
def test_queues_take_turns_as_in_kai(
    cluster: simulator.ControlPlane, api: httpx2.Client, tmp_path: Path, seed: int
) -> None:
    """One workload at a time: queues get their shares of the whole cluster."""
    case = _case(f"rivals-{seed}", random.Random(f"rivals {seed}"), rivals=3)  # noqa: S311 - likewise
    assert not _differences(cluster, api, tmp_path, Strategy.BINPACK, [case])


def _differences(
    cluster: simulator.ControlPlane, api: httpx2.Client, folder: Path, strategy: Strategy, cases: Sequence[_Case]
) -> list[tuple[_Case, object, object]]:
    """The cases that KAI decides otherwise than was foretold, with both answers."""
    _clear(api)
    for case in cases:
        for node in case.nodes:
            _create(api, "/api/v1/nodes", _node_manifest(node, case.name))
        for queue in case.queues:
            _create(api, _QUEUES, _queue_manifest(queue))
            if len(case.queues) > 2:
                # Between equal queues the older one wins, and the API server counts in seconds.
                created = time.time()
                eventually(lambda created=created: int(time.time()) > int(created))  # type: ignore[misc]
        for asked in case.groups:
            group = {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": {"name": asked.name},
                "spec": {"minMember": asked.min_member, "queue": asked.queue, "priorityClassName": asked.priority},
            }
            _create(api, _POD_GROUPS, group)
            for pod in asked.pods:
                _create(api, _PODS, _pod_manifest(case, asked, pod))
    eventually(lambda: all(_ready(node) for node in _items(api, "/api/v1/nodes")), within_seconds=60)
    with _scheduler(cluster, strategy, folder):
        eventually(lambda: not _undecided(api), within_seconds=120)
        decided = _at_the_end(api)
    differences: list[tuple[_Case, object, object]] = []
    for case in cases:
        foretold = {placed.pod.name: (placed.node, placed.groups) for placed in case.foretold(strategy).placed}
        real = {pod: there for pod, there in decided.items() if pod.startswith(f"{case.name}-")}
        if _nodes(foretold) != _nodes(real) or _fill(case, foretold) != _fill(case, real):
            differences.append((case, foretold, real))
    return differences


def _ready(node: dict[str, Any]) -> bool:
    """Whether pods may go there: a new node has a taint for a while."""
    return not node["spec"].get("taints") and any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions") or ()
    )
