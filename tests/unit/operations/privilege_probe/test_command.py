"""The command line: what make passes on, what is printed, and how it exits."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.access.client import Cluster
from config.stack import StackSettings
from manifests.versions import KAI_SCHEDULER
from operations import scratch
from operations.__main__ import app
from operations.doctor.hosts.answer import HostReport
from operations.errors import OperationError
from operations.privilege_probe import commands, host, run
from operations.privilege_probe.ladder import LADDER
from operations.privilege_probe.report import NOT_SEEN
from operations.target import folder
from testbed.stacks import ROOT, Json, changed, jetson, parse, x86
from tests.support.docs import command
from tests.support.hosts.examinations import jetson_examination, reports
from tests.support.hosts.settings import mixed_with_hosts
from tests.support.privilege_probe.outcomes import HELD, failed
from tests.unit.operations.privilege_probe.board import Board

IMAGE = "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation:" + KAI_SCHEDULER.version
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
    done = CliRunner().invoke(app, ["probe-privilege", "--node", "jetson-1", *options])
    return done.exit_code, done.stdout, done.stderr, done.exception


def test_the_answer_is_printed_and_progress_goes_to_stderr(board: Board) -> None:
    status, out, err, _ = _run()
    assert status == 0
    assert "The workaround is not needed on jetson-1" in out
    assert "variables: held" in err
    assert {pod["spec"]["containers"][0]["image"] for pod in board.pods} == {IMAGE}


def test_json_is_all_that_is_printed_with_it(board: Board) -> None:
    _, out, _, _ = _run("--json")
    answer = json.loads(out)
    assert answer["rung"] == "variables"
    assert answer["valid_for"] == {
        "kernel": "6.8.12-tegra",
        "os_image": "Ubuntu 24.04.3 LTS",
        "kubelet": "v1.36.2",
        "container_runtime": "containerd://2.1.4",
        "device_plugin_image": "not found on the node",
        "kai_image": IMAGE,
        "nvidia.com/gpu.deploy.container-toolkit": "false",
    }
    assert board.objects == {}


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stack lists the Jetson and others as hosts; gives the names of those that were asked."""
    asked: list[str] = []
    _stack(monkeypatch, changed(mixed_with_hosts(), "cluster.context", "board"))

    def hosts_of(_: str, settings: StackSettings) -> dict[str, HostReport]:
        asked.extend(settings.hosts)
        return reports(jetson(), {"jetson-1": jetson_examination()})

    monkeypatch.setattr(host, "hosts_of", hosts_of)
    return asked


def test_the_host_says_what_else_the_answer_holds_for(board: Board, hosts: list[str]) -> None:
    answer = json.loads(_run("--json", "--hosts")[1])
    assert answer["not_seen"] == []
    assert {name: answer["valid_for"][name] for name in NOT_SEEN} == {
        "container_toolkit": "1.20.0 in mode auto",
        "l4t": "R36.4.3",
        "csv_digest": "sha256:c5a",
        "cdi_digest": "none, or not readable",
    }
    assert hosts == ["jetson-1"], "nobody else is asked"
    assert board.pods


def test_a_host_that_can_not_be_asked_ends_the_probe_before_any_pod(
    board: Board, hosts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    away = reports(jetson(), {"jetson-1": "no route to host"})
    monkeypatch.setattr(host, "hosts_of", lambda *_: away)
    _, _, _, error = _run("--hosts")
    assert isinstance(error, OperationError)
    assert str(error) == "Host 'jetson-1' could not be asked: no route to host. Nothing was started on 'jetson-1'."
    assert (board.pods, hosts) == ([], [])


def test_a_jetson_that_is_no_host_of_the_stack_can_not_be_asked(board: Board) -> None:
    _, _, _, error = _run("--hosts")
    assert isinstance(error, OperationError)
    assert "does not list 'jetson-1' under hosts" in str(error)
    assert board.pods == []


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


@pytest.mark.parametrize("installs", ["everything", "hosts"])
@pytest.mark.parametrize("chosen", ["", str(folder("jetson") / "cluster" / "kubeconfig")])
def test_neither_the_simulator_nor_a_cluster_that_nobody_names_is_probed(
    board: Board, monkeypatch: pytest.MonkeyPatch, chosen: str, installs: str
) -> None:
    """The simulator is not where its kubeconfig was exported for kubectl, and hosts alone have no cluster."""
    _stack(monkeypatch, changed(jetson(), "installs", installs))
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
