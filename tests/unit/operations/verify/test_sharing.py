"""The workload that shares a GPU: what it asks for, what is expected of it, and that nothing of it stays."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from cluster.access.client import Cluster
from cluster.snapshot import read_snapshot
from config.kai import GpuSharingMode
from config.stack import StackSettings
from gpu_sharing.arithmetic import shared_mib
from manifests.kai import queues
from operations import scratch
from operations.errors import OperationError
from operations.reading import Place
from operations.verify import commands, sharing
from operations.verify.commands import NAMESPACE
from operations.verify.sharing import LABEL, Trial, planned
from operations.verify.steps import Outcome, Report, Step
from testbed.shared_gpus import reservation
from testbed.stacks import Json, parse
from testbed.stacks import jetson as stack
from tests.unit.operations.verify.kai import HOME, Kai, jetson, sharing_pod


@pytest.fixture
def settings() -> StackSettings:
    return parse(stack())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "POLL_SECONDS", 0.0)


@pytest.fixture
def kai() -> Kai:
    return Kai()


@pytest.fixture
def cluster(kai: Kai) -> Iterator[Cluster]:
    connection = kai.connect()
    yield connection
    connection.close()


def _verified(
    cluster: Cluster, settings: StackSettings, *, simulated: bool = False, cuda_image: str | None = None
) -> list[Step]:
    place = Place(cluster, settings, simulated)
    return list(
        commands._shared(
            place,
            "never-started",
            [cluster.nodes()["jetson-1"]],
            commands.Workload("default-queue", "pause:1", cuda_image),
        )
    )


def _trial(cluster: Cluster, settings: StackSettings) -> Trial | str:
    return planned(read_snapshot(cluster), settings, "jetson-1", "default-queue")


def test_one_pod_more_than_fits_is_planned(cluster: Cluster, settings: StackSettings) -> None:
    quarter = shared_mib(131072) // 4
    assert _trial(cluster, settings) == Trial("jetson-1", "jetson-1", quarter, count=5, running=4)


def test_where_kai_refuses_fractions_no_pod_is_made(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    off = settings.kai.model_copy(update={"gpu_sharing_mode": GpuSharingMode.DISABLED})
    [step] = _verified(cluster, settings.model_copy(update={"kai": off}))
    assert step.outcome is Outcome.SKIPPED
    assert step.says.startswith("kai.gpu_sharing_mode is 'disabled', so KAI refuses pods with fractions.")
    assert kai.made == []


def test_never_more_is_asked_for_than_others_leave(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    kai.there = [sharing_pod("arm", 100_000)]
    trial = _trial(cluster, settings)
    assert isinstance(trial, Trial)
    assert trial.request_mib * trial.running <= shared_mib(131072) - 100_000
    assert (trial.running, trial.count) == (4, 5)


def test_a_queue_s_limit_is_named_where_it_is_why_fewer_pods_run(
    kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    kai.queues = [dict(queue) for queue in queues(settings).values()]
    step, _ = _verified(cluster, settings)
    assert step.says == "4 of 5 pods of 32750 MiB run, as planned.", "there the GPU decides"
    kai.made.clear()
    for queue in kai.queues:
        if queue["metadata"]["name"] == "default-queue":
            gpu = queue["spec"]["resources"]["gpu"] | {"limit": 0.6}
            queue["spec"] |= {"resources": queue["spec"]["resources"] | {"gpu": gpu}}
    kai.runs = 2
    step, _ = _verified(cluster, settings)
    assert step.outcome is Outcome.HELD
    assert step.says.startswith("2 of 3 pods of 32750 MiB run, as planned. Queue 'default-queue' ")
    assert "over its limit" in step.says


def test_where_no_pod_would_run_nothing_is_shown_and_so_nothing_holds(
    kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    kai.queues = [dict(queue) for queue in queues(settings).values()]
    said = planned(read_snapshot(cluster), settings, "jetson-1", "default-parent-queue")
    assert said == (
        "by KAI's arithmetic no pod would run. Queue 'default-parent-queue' has queues below it: pods are submitted to "
        "one of those."
    )


@pytest.mark.parametrize(
    ("spec", "ready", "says"),
    [
        ({"unschedulable": True}, "True", "left out: the node is cordoned. "),
        ({}, "Unknown", "left out: the node is not Ready, "),
    ],
)
def test_no_pod_is_started_on_a_node_that_is_cordoned_or_not_ready(  # noqa: PLR0913, PLR0917 - a table
    kai: Kai, cluster: Cluster, settings: StackSettings, spec: Json, ready: str, says: str
) -> None:
    kai.nodes[0]["spec"] = spec
    kai.nodes[0]["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    [step] = _verified(cluster, settings)
    assert (step.outcome, step.says.startswith(says)) == (Outcome.SKIPPED, True)
    assert kai.pods == []


@pytest.mark.parametrize(
    ("kernel", "cuda", "tag"),
    [
        ("5.15.148-tegra", "its own CUDA 12", "jetpack-6"),
        ("6.8.12-1021-tegra", "its own CUDA 13", "jetpack-7"),
        ("6.14.0-1013-nvidia", "a CUDA that its driver supports", "arm64"),
    ],
)
def test_a_board_without_a_known_image_is_told_which_one_to_build(  # noqa: PLR0913, PLR0917 - a table
    kai: Kai, cluster: Cluster, settings: StackSettings, kernel: str, cuda: str, tag: str
) -> None:
    kai.nodes = [jetson()]
    kai.nodes[0]["status"]["nodeInfo"]["kernelVersion"] = kernel
    _, step = _verified(cluster, settings)
    assert step.outcome is Outcome.SKIPPED
    assert f"with nvcc of {cuda}" in step.says
    assert step.says.endswith(f"kai-anywhere verify --cuda-image REGISTRY/vectoradd:{tag}")


def test_the_records_of_a_simulator_are_asked_for_no_log(
    kai: Kai, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    kai.log = "found GPU-1111\n"
    monkeypatch.setattr("simulator.status", lambda _: SimpleNamespace(kai_programs="images"))
    [step] = _verified(cluster, settings, simulated=True)
    assert step.outcome is Outcome.HELD
    assert not [line for line in step.evidence if "log: " in line]
    kai.made.clear()
    step, _ = _verified(cluster, settings)
    assert [line for line in step.evidence if "log: " in line]


def test_a_full_gpu_is_left_alone(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    kai.there = [sharing_pod("arm", 130_900)]
    [step] = _verified(cluster, settings)
    assert step.outcome is Outcome.SKIPPED
    assert step.says == "100 MiB of its GPU memory are free; 400 are needed."
    assert kai.pods == []


def test_a_node_without_a_memory_label_is_left_alone(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    kai.nodes = [jetson()]
    del kai.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.memory"]
    [step] = _verified(cluster, settings)
    assert step.outcome is Outcome.SKIPPED
    assert step.says == "KAI places no pod with gpu-memory there: the node has no label nvidia.com/gpu.memory."
    assert kai.pods == []


def test_pods_that_share_as_planned_hold_and_are_gone(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    step, cuda = _verified(cluster, settings)
    assert cuda.outcome is Outcome.SKIPPED, "no image is known for a Jetson"
    assert "kai-anywhere verify --cuda-image REGISTRY/vectoradd:" in cuda.says
    assert step.outcome is Outcome.HELD
    assert step.says == "4 of 5 pods of 32750 MiB run, as planned."
    assert step.evidence[4].endswith("Pending: node-group(s) didn't have enough resource")
    assert len(kai.pods) == 5
    assert kai.objects == {}, "the namespace went, with everything"


def test_the_pods_use_no_gpu_memory_and_fit_the_strictest_namespace(
    kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    _verified(cluster, settings)
    [home] = [manifest for manifest in kai.made if manifest["kind"] == "Namespace"]
    assert home["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in kai.pods:
        [container] = pod["spec"]["containers"]
        assert pod["metadata"]["annotations"] == {"gpu-memory": "32750"}
        assert "resources" not in container
        assert container["image"] == "pause:1"
        assert "command" not in container
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["metadata"]["labels"][LABEL] == "true"


def test_the_gpu_that_each_reservation_pod_names_is_shown_with_its_log(
    kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    holder = reservation("g1")
    name = holder["metadata"]["name"]
    kai.holders = [holder, reservation("somebodys", uuid="GPU-9999")]
    kai.log = f"I1 looking for the device of {name}\n\nI2 found GPU-1111\n"
    step, _ = _verified(cluster, settings)
    assert step.outcome is Outcome.HELD
    assert step.evidence[5:] == (
        "gpu-reservation of GPU group g1: GPU-1111",
        "  log: I1 looking for the device of gpu-reservation",
        "  log: I2 found GPU-1111",
    )


def test_on_a_jetson_the_uuid_is_shown_and_not_the_index_that_kai_reads(
    kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    holder = reservation("g1", uuid="0")
    holder["metadata"]["annotations"]["kai-anywhere.io/gpu-uuid"] = "GPU-2222"
    kai.holders = [holder]
    step, _ = _verified(cluster, settings)
    assert "gpu-reservation of GPU group g1: GPU-2222" in step.evidence


@pytest.mark.parametrize(
    ("group", "holders", "says"),
    [
        ("g1", [], "GPU group g1 has no reservation pod"),
        ("g1", [reservation("g1", uuid=None)], "the reservation pod of GPU group g1 names no GPU"),
        ("", [], "sharing-0 has no GPU group"),
    ],
    ids=["nobody-holds-it", "no-uuid", "no-group"],
)
def test_pods_that_run_on_a_gpu_that_nobody_names_are_a_failure(  # noqa: PLR0913, PLR0917 - a table
    kai: Kai, cluster: Cluster, settings: StackSettings, group: str, holders: list[Json], says: str
) -> None:
    kai.group, kai.holders = group, holders
    [step] = _verified(cluster, settings)
    assert step.outcome is Outcome.FAILED
    assert says in step.says
    assert kai.objects == {}


def test_reservation_pods_that_the_user_may_not_see_are_said_to_be_unseen(
    kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    kai.holders = None
    step, _ = _verified(cluster, settings)
    assert step.outcome is Outcome.HELD
    assert step.evidence[-1].startswith("not seen: reservation pods: ")


@pytest.mark.parametrize("runs", [0, 3, 5])
def test_another_number_than_planned_is_a_failure_with_each_pod_s_reason(
    kai: Kai, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    monkeypatch.setattr(sharing, "WITHIN_SECONDS", 0.0)
    kai.runs = runs
    [step] = _verified(cluster, settings)
    assert step.outcome is Outcome.FAILED
    assert step.says.startswith(f"{runs} of 5 pods of 32750 MiB run; by the plan 4 should.")
    assert len([line for line in step.evidence if line.startswith("sharing-")]) == 5
    assert kai.objects == {}


def test_pods_that_the_cluster_refuses_are_a_failure_and_leave_nothing(
    kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    kai.refuses = "admission webhook denied the request: no queue"
    [step] = _verified(cluster, settings)
    assert (step.outcome, step.evidence) == (Outcome.FAILED, (kai.refuses,))
    assert kai.objects == {}


def test_a_namespace_of_somebody_else_is_not_touched(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    theirs = {"kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {}}}
    kai.objects = {HOME: theirs}
    with pytest.raises(OperationError, match=r"is not the verification's: it lacks the label"):
        _verified(cluster, settings)
    assert kai.objects == {HOME: theirs}
    assert kai.made == []


def test_what_a_killed_run_left_is_removed_first(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    left = {"kind": "Pod", "metadata": {"name": "sharing-0", "namespace": NAMESPACE, "labels": {LABEL: "true"}}}
    kai.objects = {
        HOME: {"kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {LABEL: "true"}}},
        f"{HOME}/pods/sharing-0": left,
    }
    step, _ = _verified(cluster, settings)
    assert step.outcome is Outcome.HELD
    assert kai.objects == {}


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (("Succeeded", "[Vector addition of 50000 elements]\nTest PASSED\nDone"), Outcome.HELD),
        (("Succeeded", "nothing of that kind"), Outcome.FAILED),
        (("Failed", "Failed to allocate device vector A"), Outcome.FAILED),
    ],
)
def test_the_vector_addition_passes_by_its_own_word(
    kai: Kai, cluster: Cluster, settings: StackSettings, ended: tuple[str, str], outcome: Outcome
) -> None:
    kai.addition, kai.log = ended
    _, step = _verified(cluster, settings, cuda_image="samples:1")
    assert (step.name, step.outcome) == ("cuda", outcome)
    assert list(step.evidence) == kai.log.splitlines()
    addition = kai.pods[-1]
    assert addition["metadata"]["annotations"] == {"gpu-memory": "400"}, "a share, and not the board"
    assert addition["spec"]["containers"][0]["image"] == "samples:1"
    assert kai.objects == {}


def test_no_cuda_runs_where_sharing_failed(
    kai: Kai, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "WITHIN_SECONDS", 0.0)
    kai.runs = 0
    [step] = _verified(cluster, settings, cuda_image="samples:1")
    assert step.name == "sharing"


@pytest.mark.parametrize("right", ["create namespaces", "get namespaces", "list pods"])
def test_who_may_not_make_pods_or_see_all_makes_nothing(
    right: str, kai: Kai, cluster: Cluster, settings: StackSettings
) -> None:
    kai.forbids = frozenset({right})
    [step] = _verified(cluster, settings)
    assert (step.outcome, step.says) == (Outcome.SKIPPED, f"this user may not {right}.")
    assert kai.made == []


def test_an_emulated_kai_is_not_asked(kai: Kai, cluster: Cluster, settings: StackSettings) -> None:
    [step] = _verified(cluster, settings, simulated=True)
    assert step.outcome is Outcome.SKIPPED
    assert "emulated" in step.says
    assert kai.made == []


def test_the_exit_status_is_the_worst_of_the_steps() -> None:
    held, skipped, failed = (
        Step(name="a", outcome=outcome, says="b.") for outcome in (Outcome.HELD, Outcome.SKIPPED, Outcome.FAILED)
    )
    assert Report(steps=(held,)).status == 0
    assert Report(steps=(held, skipped)).status == 4
    assert Report(steps=(failed, skipped, held)).status == 3
    assert Report(steps=()).status == 4
    assert Report(steps=(held, failed)).text().splitlines() == [
        "held    a: b.",
        "failed  a: b.",
        "",
        "1 held, 1 failed.",
    ]
