"""The command line: what make passes on, what is printed, and how it exits."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.client import Cluster
from operations import __main__ as commands
from operations import scratch
from operations.errors import OperationError
from operations.privilege_probe import run
from operations.privilege_probe.ladder import LADDER
from operations.target import folder
from testbed.stacks import ROOT, Json, changed, jetson, parse, x86
from tests.support.docs import command
from tests.support.privilege_probe.outcomes import HELD, failed
from tests.unit.operations.privilege_probe.board import Board

IMAGE = "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation:v0.18.6"
ALL_FAIL = dict.fromkeys((rung.name for rung in LADDER), failed("ERROR_LIBRARY_NOT_FOUND"))


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    """The cluster that the command finds."""
    made = Board({**ALL_FAIL, "variables": HELD})
    monkeypatch.setattr(run, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(scratch, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(Cluster, "connect", lambda _: made.connect())
    _stack(monkeypatch, changed(jetson(), "cluster.context", "board"))
    return made


def _stack(monkeypatch: pytest.MonkeyPatch, stack: Json) -> None:
    monkeypatch.setattr(commands, "read_settings", lambda _: parse(stack))


def _run(*options: str) -> tuple[int, str, str, BaseException | None]:
    done = CliRunner().invoke(commands.app, ["probe-privilege", "--node", "jetson-1", *options])
    return done.exit_code, done.stdout, done.stderr, done.exception


def test_the_answer_is_printed_and_progress_goes_to_stderr(board: Board) -> None:
    status, out, err, _ = _run()
    assert status == 0
    assert "The workaround is not needed on jetson-1" in out
    assert "variables: held" in err
    assert {pod["spec"]["containers"][0]["image"] for pod in board.pods} == {IMAGE}


def test_json_is_all_that_is_printed_with_it(board: Board) -> None:
    _, out, _, _ = _run("--json")
    told = json.loads(out)
    assert told["rung"] == "variables"
    assert told["valid_for"] == {
        "kernel": "6.8.12-tegra",
        "os_image": "Ubuntu 24.04.3 LTS",
        "kubelet": "v1.36.2",
        "container_runtime": "containerd://2.1.4",
        "device_plugin_image": "not found on the node",
        "kai_image": IMAGE,
        "nvidia.com/gpu.deploy.container-toolkit": "false",
    }
    assert board.objects == {}


def test_no_rung_that_holds_is_status_3(board: Board) -> None:
    board.script = ALL_FAIL
    assert _run()[0] == 3


def test_a_probe_that_could_not_run_is_status_1(board: Board) -> None:
    board.script = {**ALL_FAIL, "plain": failed("could not find pod. dial tcp: i/o timeout")}
    assert _run()[0] == 1


def test_groups_and_image_may_be_named(board: Board) -> None:
    board.script = {**ALL_FAIL, "runtime-class": failed("Driver Not Loaded"), "groups": HELD}
    assert _run("--group", "107", "--group", "44", "--image", "kai:mine")[0] == 0
    assert board.pods[-1]["spec"]["securityContext"] == {"supplementalGroups": [107, 44]}
    assert board.pods[-1]["spec"]["containers"][0]["image"] == "kai:mine"


def test_an_x86_stack_is_refused(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    _stack(monkeypatch, x86())
    assert isinstance(error := _run()[3], OperationError)
    assert "This is an x86 stack" in str(error)
    assert board.changes == 0


@pytest.mark.parametrize("chosen", ["", str(folder("jetson") / "cluster" / "kubeconfig")])
def test_the_simulator_is_not_probed(board: Board, monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    """Nor where its kubeconfig was exported for kubectl."""
    _stack(monkeypatch, jetson())
    monkeypatch.setenv("KUBECONFIG", chosen)
    assert isinstance(error := _run()[3], OperationError)
    assert "Give KUBECONFIG" in str(error)
    assert board.changes == 0


def test_the_command_of_the_guide_names_node_and_kubeconfig(tmp_path: Path) -> None:
    program = tmp_path / "kai-anywhere"
    program.write_text('#!/bin/sh\necho "$* with $KUBECONFIG"\n', encoding="utf-8")
    program.chmod(0o755)
    text = command("jetson.md", "make probe-privilege NODE=jetson-1 KUBECONFIG=~/.kube/config")
    make, *options = text.split()
    done = subprocess.run(
        [make, "--old-file=.venv/installed", f"KAI_ANYWHERE={program}", *options],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == ("probe-privilege --stack jetson --node jetson-1 with ~/.kube/config\n")
