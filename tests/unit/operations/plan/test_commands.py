"""The command: what it prints, what it refuses, and its exit status."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from config.stack import StackConfigError
from operations.errors import OperationError
from operations.plan.commands import plan
from operations.plan.report import PlanReport
from testbed.stacks import ROOT, STACK_FILES
from tests.support.api_server import ApiServer, node

_GPU = ("--gpu-memory-mib", "131072")


def _run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(plan)
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "400"})


def _json(*arguments: str) -> dict[str, Any]:
    done = _run(*arguments, "--json")
    answer: dict[str, Any] = json.loads(done.stdout)
    PlanReport.model_validate_json(done.stdout)
    return answer


def test_five_pods_of_30_gib_on_128_gib_are_four_and_one() -> None:
    answer = _json(*_GPU, "--request-mib", "30720", "--pods", "5")
    assert (answer["running"], answer["pending"]) == (4, 1)
    assert (answer["warnings"], answer["remarks"]) == ([], [])
    [node] = answer["nodes"]
    assert (node["label_mib"], node["shared_mib"], node["system_memory"]) == (131072, 131000, None)
    assert [gpu["free_mib"] for gpu in node["gpus"]] == [8120]
    [waiting] = [pod for pod in answer["pods"] if pod["node"] is None]
    assert (waiting["name"], waiting["reason"]) == ("pod-5", "gpu-memory")


def test_the_nearest_request_to_an_exact_quarter_is_told() -> None:
    answer = _json(*_GPU, "--request-mib", "32768", "--pods", "4")
    assert answer["running"] == 3
    assert [entry["request_mib"] for entry in answer["nearest"]] == [32750]
    assert _json(*_GPU, "--request-mib", "32750", "--pods", "4")["nearest"] == []


def test_a_fraction_has_its_nearest_too() -> None:
    [near] = _json(*_GPU, "--fraction", "0.3", "--pods", "4")["nearest"]
    assert (near["fraction"], near["request_mib"]) == (0.25, None)


def test_of_many_that_wait_the_first_are_searched_and_the_others_counted(tmp_path: Path) -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{index}", "annotations": {"gpu-memory": "70000"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "busybox:1"}]},
        }
        for index in range(300)
    ]
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all(pods), encoding="utf-8")
    answer = _json(*_GPU, "--file", str(file))
    assert (answer["running"], answer["pending"]) == (1, 299)
    assert [near["pods"] for near in answer["nearest"]] == [[f"pod-{index}"] for index in range(1, 7)]
    assert answer["remarks"] == [
        "The nearest request of 293 more workloads that wait was not searched: plan fewer at once."
    ]


def test_pods_of_one_name_are_several_pods(tmp_path: Path) -> None:
    """As `kubectl create` makes them of a generateName."""
    pod = {
        "kind": "Pod",
        "metadata": {"generateName": "trial-", "annotations": {"gpu-memory": "30000"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
    }
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all([pod] * 5), encoding="utf-8")
    answer = _json(*_GPU, "--file", str(file))
    [gpu] = answer["nodes"][0]["gpus"]
    assert [share["pod"] for share in gpu["shares"]] == ["trial-", "trial- (2)", "trial- (3)", "trial- (4)"]
    assert (answer["running"], answer["pending"], gpu["free_mib"]) == (4, 1, 11000)
    assert sum(share["mib"] for share in gpu["shares"]) == 120000


def _piped(manifests: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "operations", "plan", *_GPU, "--json", "--file", "-"]
    return subprocess.run(command, input=manifests, check=False, capture_output=True, cwd=ROOT, timeout=60)


def test_manifests_come_through_a_pipe_too(tmp_path: Path) -> None:
    file = tmp_path / "<stdin>"
    shutil.copy(ROOT / "examples" / "sharing.yaml", file)
    done = _piped(file.read_bytes())
    assert json.loads(done.stdout) == _json(*_GPU, "--file", str(file))
    assert b"<stdin> has no pods for KAI" in _piped(b"").stderr
    assert b"<stdin> can't be read" in _piped(b"\xff").stderr


def test_standard_input_that_is_closed_has_no_pods_and_is_called_what_it_is() -> None:
    command = [sys.executable, "-m", "operations", "plan", *_GPU, "--file", "-"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command], check=False, capture_output=True, cwd=ROOT, timeout=60
    )
    assert (done.returncode, done.stderr.partition(b" has no pods for KAI")[0]) == (1, b"<stdin>")


def test_gpus_nodes_and_devices_multiply() -> None:
    answer = _json(*_GPU, "--gpus", "2", "--nodes", "3", "--request-mib", "65500", "--devices", "2", "--pods", "7")
    assert (answer["running"], answer["pending"]) == (6, 1)
    assert [len(node["gpus"]) for node in answer["nodes"]] == [2, 2, 2]


def test_the_picture_needs_no_colours() -> None:
    done = _run(*_GPU, "--request-mib", "32768", "--pods", "4")
    assert done.exit_code == 0
    assert done.stdout.isascii()
    assert done.stdout.splitlines() == [
        "3 of 4 pods run, 1 Pending.",
        "",
        "node-1: gpu.memory 131072 MiB, KAI shares 131000 of each GPU",
        "  GPU 1 |AAAAAAAAAAAAAAABBBBBBBBBBBBBBBCCCCCCCCCCCCCCC...............| 98304 MiB used, 32696 free",
        "         A pod-1 32768   B pod-2 32768   C pod-3 32768",
        "",
        "Pending",
        "  pod-4: It asks for 32768 MiB; node-1 has at most 32696 MiB left on a GPU.",
        "",
        "Nearest request that fits",
        '  pod-1, pod-2, pod-3, pod-4 all run with gpu-memory: "32750"',
    ]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            80,
            [
                "  GPU 1 |AAAAAAAAAAABBBBBBBBBBBCCCCCCCCCC...........| 98304 MiB used, 32696 free",
                "         A pod-1 32768   B pod-2 32768   C pod-3 32768",
            ],
        ),
        (40, ["  GPU 1 |AAAABBBBCCCC....|", "         98304 MiB used, 32696 free"]),
        (500, [f"  GPU 1 |{'A' * 15}{'B' * 15}{'C' * 15}{'.' * 15}| 98304 MiB used, 32696 free"]),
    ],
)
def test_the_picture_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, lines: list[str]) -> None:
    monkeypatch.setattr("operations.plan.commands._columns", lambda: columns)
    shown = _run(*_GPU, "--request-mib", "32768", "--pods", "4").stdout.splitlines()
    assert shown[3 : 3 + len(lines)] == lines


@pytest.mark.parametrize(
    ("pods", "nodes", "says"),
    [
        ("2", "1", "pod-2: It asks for 100000 MiB; node-1 has at most 31000 MiB left on a GPU.\n"),
        ("4", "2", "pod-3, pod-4: Each asks for 100000 MiB; node-1 has at most"),
        ("3", "2", " left on a GPU. 1 more node likewise.\n"),
        ("4", "3", " left on a GPU. 2 more nodes likewise.\n"),
    ],
)
def test_one_pod_or_node_is_spoken_of_as_one_and_several_as_several(pods: str, nodes: str, says: str) -> None:
    assert says in _run(*_GPU, "--request-mib", "100000", "--pods", pods, "--nodes", nodes).stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--request-mib", "30720", "--pods", "5"), 0),
        (("--request-mib", "30720", "--pods", "5", "--require-all"), 3),
        (("--request-mib", "30720", "--pods", "4", "--require-all"), 0),
        (("--request-mib", "100", "--machine-memory-mib", "131071"), 4),
        (("--request-mib", "100", "--machine-memory-mib", "131072"), 0),
        (("--request-mib", "200000", "--machine-memory-mib", "1", "--require-all"), 3),
    ],
)
def test_the_exit_status_is_that_of_every_command(arguments: tuple[str, ...], status: int) -> None:
    assert _run(*_GPU, *arguments).exit_code == status


def test_the_same_memory_is_not_given_away_twice_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(_manifest(memory="8Gi"), encoding="utf-8")
    arguments = ("--gpu-memory-mib", "122880", "--machine-memory-mib", "128000", "--file", str(file))
    answer = _json(*arguments)
    assert answer["nodes"][0]["system_memory"] == {"gpu_mib": 122880, "requests_mib": 8192, "machine_mib": 128000}
    [warning] = answer["warnings"]
    assert "3072 MiB are given away twice" in warning
    assert _run(*arguments).exit_code == 4
    file.write_text(_manifest(memory="5120Mi"), encoding="utf-8")
    assert _json(*arguments)["warnings"] == []


def _manifest(memory: str) -> str:
    container = {"name": "main", "resources": {"requests": {"memory": memory}}}
    return yaml.safe_dump(
        {
            "kind": "Pod",
            "metadata": {"name": "one", "annotations": {"gpu-memory": "30000"}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
        }
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--request-mib", "1"), "Nodes come from one of --gpu-memory-mib, --stack and --live"),
        ((*_GPU, "--stack", "jetson", "--request-mib", "1"), "Nodes come from one of"),
        ((*_GPU, "--live", "--request-mib", "1"), "Nodes come from one of"),
        (_GPU, "Pods come from one of --request-mib, --fraction and --file"),
        ((*_GPU, "--request-mib", "1", "--fraction", "0.5"), "Pods come from one of"),
        (("--stack", "jetson", "--request-mib", "1", "--gpus", "2"), "--gpus goes with --gpu-memory-mib only"),
        (("--stack", "jetson", "--request-mib", "1", "--context", "x"), "--context goes with --live only"),
        (("--stack", "jetson", "--request-mib", "1", "--placement", "spread"), "whose kai.scheduler.placement says it"),
        (("--live", "--pods", "2"), "--pods goes with --request-mib or --fraction"),
        ((*_GPU, "--request-mib", "1", "--queue", "x"), "--queue goes with --stack or --live"),
        ((*_GPU, "--fraction", "1"), "give a number above 0 and below 1"),
        ((*_GPU, "--request-mib", "0"), "Input should be greater than or equal to 1"),
        (("--gpu-memory-mib", "1048576", "--request-mib", "1"), "Input should be less than or equal to 1048575"),
        ((*_GPU, "--file", "gone.yaml"), "'gone.yaml': No such file or directory"),
        ((*_GPU, "--request-mib", "1", "--placement", "pile"), "'binpack', 'spread'"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: tuple[str, ...], why: str) -> None:
    done = _run(*arguments)
    assert done.exit_code == 2
    assert why in done.stderr
    assert done.stdout == ""


@pytest.fixture
def stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stack files of the tests, where the command looks."""
    for name in ("jetson", "x86"):
        (tmp_path / f"Pulumi.{name}.yaml").write_text(
            (STACK_FILES / f"Pulumi.{name}.yaml").read_text(encoding="utf-8"), encoding="utf-8"
        )
    monkeypatch.setattr("operations.plan.commands.ROOT", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("stacks")
def test_a_stacks_nodes_and_queues_are_planned_for() -> None:
    answer = _json("--stack", "jetson", "--request-mib", "30000", "--pods", "5")
    [node] = answer["nodes"]
    assert (node["name"], answer["running"], answer["pending"]) == ("jetson-1", 4, 1)
    assert node["system_memory"]["machine_mib"] is None
    assert {pod["queue"] for pod in answer["pods"]} == {"default-queue"}
    unknown = _json("--stack", "jetson", "--request-mib", "1", "--queue", "gone")
    assert [pod["reason"] for pod in unknown["pods"]] == ["queue-unknown"]


def test_a_cluster_is_planned_for(config_path: str, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", config_path)
    board = node("jetson-1")
    board["metadata"]["labels"] = {"nvidia.com/gpu.memory": "131072", "nvidia.com/gpu.count": "1"}
    api.serve("/api/v1/nodes", {"items": [board]})
    running = {
        "metadata": {
            "name": "old",
            "namespace": "default",
            "annotations": {"gpu-memory": "100280"},
            "labels": {"runai-gpu-group": "abc"},
        },
        "spec": {"nodeName": "jetson-1", "schedulerName": "kai-scheduler", "containers": []},
        "status": {"phase": "Running"},
    }
    api.serve("/api/v1/pods", {"items": [running]})
    answer = _json("--live", "--request-mib", "30720", "--pods", "2")
    assert (answer["running"], answer["pending"]) == (2, 1)
    assert {pod["name"]: pod["node"] for pod in answer["pods"]} == {
        "old": "jetson-1",
        "pod-1": "jetson-1",
        "pod-2": None,
    }
    assert (_json("--live")["running"], _json("--live")["pending"]) == (1, 0)
    assert {request.method for request in api.asked} == {"GET"}
    api.fail("/api/v1/pods", 403)
    assert "The cluster's pods can't be read" in str(_run("--live").exception)


@pytest.mark.parametrize(
    "spec",
    [{"global": {"gpuSharingMode": "Disabled"}}, {"admission": {"gpuSharing": False}}],
    ids=["from 0.18 on", "before"],
)
def test_a_kai_that_refuses_fractions_is_planned_for_with_whole_gpus_alone(
    config_path: str, api: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: dict[str, Any]
) -> None:
    monkeypatch.setenv("KUBECONFIG", config_path)
    board = node("jetson-1")
    board["metadata"]["labels"] = {"nvidia.com/gpu.memory": "131072", "nvidia.com/gpu.count": "1"}
    api.serve("/api/v1/nodes", {"items": [board]})
    api.serve("/api/v1/pods", {"items": []})
    api.serve("/apis/kai.scheduler/v1/configs", {"items": [{"metadata": {"name": "kai-config"}, "spec": spec}]})
    assert str(_run("--live", "--request-mib", "30720").exception) == (
        "KAI's Config switches fractions off, so KAI refuses pods with fractions. Choose another mode first."
    )
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]}
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod), encoding="utf-8")
    assert _json("--live", "--file", str(tmp_path / "pod.yaml"))["running"] == 1


@pytest.mark.usefixtures("stacks")
def test_a_stack_that_says_no_memory_is_told_the_way_out() -> None:
    done = _run("--stack", "x86", "--request-mib", "1")
    assert isinstance(done.exception, OperationError)
    assert "no node has GPUs whose memory is known. Give --gpu-memory-mib" in str(done.exception)


def test_a_wrong_stack_is_an_error_and_no_usage(stacks: Path) -> None:
    assert isinstance(_run("--stack", "roof", "--request-mib", "1").exception, OperationError)
    (stacks / "Pulumi.wrong.yaml").write_text("config: {'kai-anywhere:settings': {}}", encoding="utf-8")
    assert isinstance(_run("--stack", "wrong", "--request-mib", "1").exception, StackConfigError)
