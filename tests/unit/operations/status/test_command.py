"""The command on a cluster: what it prints, and how it ends."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from operations.__main__ import main
from operations.exit_status import ExitStatus
from sharing_map.report import Status
from testbed.shared_gpus import BIND_REQUESTS, CONFIGS, NODES, POD_GROUPS, PODS, QUEUES, fleet, pages
from testbed.stacks import ROOT, STACK_FILES
from tests.support.api_server import ApiServer
from tests.support.docs import command

_IN_CHECKOUT = (
    "import os, pathlib, sys; from operations import reading; reading.ROOT = pathlib.Path(os.environ['CHECKOUT']); "
    "from operations.__main__ import main; main()"
)
"""The command, with the stack files of another checkout: those of this one are their user's."""
_COMMAND = [sys.executable, "-c", _IN_CHECKOUT, "status"]


@pytest.fixture
def environment(api: ApiServer, config_path: str, tmp_path: Path) -> dict[str, str]:
    """The variables of somebody whose cluster has two nodes with five pods each."""
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path)
    for path, items in fleet(2).items():
        api.pages(path, dict(pages(items, 3)))
    return os.environ | {"KUBECONFIG": config_path, "COLUMNS": "100", "CHECKOUT": str(tmp_path)}


@dataclass(frozen=True)
class _Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., _Done]:
    """Run the command with these options, as `kai-anywhere` does."""

    def run(*options: str) -> _Done:
        for name in ("KUBECONFIG", "COLUMNS"):
            monkeypatch.setenv(name, environment[name])
        monkeypatch.setattr("operations.reading.ROOT", Path(environment["CHECKOUT"]))
        monkeypatch.setattr(sys, "argv", ["kai-anywhere", "status", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        return _Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


def test_the_map_is_printed_and_nothing_is_changed(api: ApiServer, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "kai-anywhere").write_text(f'#!/bin/sh\nexec {shlex.join(_COMMAND[:-1])} "$@"\n', encoding="utf-8")
    (tmp_path / "kai-anywhere").chmod(0o700)
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    guide = command("status.md", "kai-anywhere status")
    done = subprocess.run(["sh", "-c", guide], cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (ExitStatus.WELL, "")
    assert "8 pods with GPUs, 2 Pending." in done.stdout
    assert "120000 of 131000 MiB taken, 11000 free" in done.stdout
    assert "\x1b" not in done.stdout
    assert {request.method for request in api.asked} == {"GET"}
    assert {request.path for request in api.asked} == {NODES, PODS, QUEUES, POD_GROUPS, BIND_REQUESTS, CONFIGS}


def test_in_a_pipe_no_line_is_cut(run: Callable[..., _Done], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("40", None):
        monkeypatch.setenv("COLUMNS", columns) if columns else monkeypatch.delenv("COLUMNS")
        shown = run().stdout
        assert "…" not in shown
        assert ", queue robots  (metadata.annotations[gpu-memory])\n" in shown
        assert "one more pod can get 11,000 MiB at most.\n" in shown


def test_a_terminal_of_no_columns_is_one_of_unknown_width(
    run: Callable[..., _Done], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment["COLUMNS"] = "0"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "8 pods with GPUs, 2 Pending." in run().stdout


def test_json_keeps_to_its_schema(run: Callable[..., _Done]) -> None:
    done = run("--json")
    assert (done.returncode, done.stderr) == (0, "")
    read = Status.model_validate_json(done.stdout)
    assert read.schema_version == "kai-anywhere.io/status/v1"
    assert (read.summary.shares, read.context) == (8, "loopback")


def test_what_the_user_may_not_see_is_a_warning_and_a_status_of_its_own(
    api: ApiServer, run: Callable[..., _Done]
) -> None:
    api.fail(PODS, 403)
    done = run()
    assert done.returncode == ExitStatus.WARNINGS
    [line] = done.stderr.splitlines()
    assert line.startswith("warning: pods could not be read: The cluster at ")
    assert "what is free and what is Pending is not known" in done.stdout
    done = run("--json")
    assert done.returncode == ExitStatus.WARNINGS
    assert [gap["what"] for gap in json.loads(done.stdout)["unseen"]] == ["pods"]


def test_a_cluster_that_does_not_answer_is_no_map(api: ApiServer, run: Callable[..., _Done]) -> None:
    api.fail(NODES, 503)
    done = run()
    assert (done.returncode, done.stdout) == (ExitStatus.COULD_NOT_RUN, "")
    assert "503" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_login_that_has_ended_is_no_map_but_an_error(api: ApiServer, run: Callable[..., _Done]) -> None:
    for path in (NODES, PODS, QUEUES, POD_GROUPS, BIND_REQUESTS):
        api.fail(path, 401)
    for options in ((), ("--json",)):
        done = run(*options)
        assert (done.returncode, done.stdout) == (ExitStatus.COULD_NOT_RUN, "")
        assert "The login has ended, or is for another cluster. Log in again" in done.stderr


def test_the_page_is_written_to_the_file(run: Callable[..., _Done], tmp_path: Path) -> None:
    done = run("--html", str(tmp_path / "map.html"))
    assert (done.returncode, done.stdout) == (0, f"Written to {tmp_path / 'map.html'}.\n")
    assert "robots/arm-0-0" in (tmp_path / "map.html").read_text(encoding="utf-8")
    done = run("--html", str(tmp_path / "gone" / "map.html"))
    assert done.returncode == ExitStatus.COULD_NOT_RUN
    assert "can't be written: No such file or directory. Choose another file." in done.stderr


@pytest.mark.parametrize("arguments", [("--watch", "--serve"), ("--html", "x", "--json"), ("--port", "8011")])
def test_options_that_do_not_go_together_are_refused(run: Callable[..., _Done], arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (ExitStatus.USAGE, "")


def test_an_unknown_context_names_those_that_there_are(run: Callable[..., _Done]) -> None:
    done = run("--context", "mars")
    assert done.returncode == ExitStatus.COULD_NOT_RUN
    assert "has no context 'mars'. Contexts: loopback." in done.stderr


def test_serving_says_where_and_ends_with_an_interrupt(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*_COMMAND, "--serve"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("GPU sharing on loopback: http://127.0.0.1:")
        with urllib.request.urlopen(line.split()[4], timeout=30) as answer:  # noqa: S310 - our own server
            assert b"robots/arm-0-0" in answer.read()
        server.send_signal(signal.SIGINT)
        output, error = server.communicate(timeout=30)
    assert (server.returncode, output, error) == (0, "", "")


def test_a_list_at_which_the_api_server_fails_is_a_warning_and_is_waited_for_where_the_map_is_read_again(
    api: ApiServer, run: Callable[..., _Done], environment: dict[str, str]
) -> None:
    api.fail(PODS, 500)
    done = run()
    assert (done.returncode, "8 pods" in done.stdout) == (ExitStatus.WARNINGS, False)
    assert f"warning: pods could not be read: The cluster at {api.url} answered GET {PODS} with" in done.stderr
    with subprocess.Popen(
        [*_COMMAND, "--watch"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().endswith("with status 500. Trying again.\n")
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)


def test_watching_goes_on_with_the_login_that_the_kubeconfig_has_by_then(
    api: ApiServer, environment: dict[str, str], config_path: str
) -> None:
    answer = api.answers[NODES]
    api.fail(NODES, 401)
    with subprocess.Popen(
        [*_COMMAND, "--watch"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert "does not accept the login" in watching.stdout.readline()
        renewed = Path(config_path).read_text(encoding="utf-8").replace("let-me-in", "renewed")
        Path(config_path).write_text(renewed, encoding="utf-8")
        api.answers[NODES] = answer
        assert "8 pods with GPUs, 2 Pending." in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, error = watching.communicate(timeout=30)
    assert (watching.returncode, error) == (0, "")
    assert api.asked[-1].headers["authorization"] == "Bearer renewed"


def test_watching_ends_with_an_interrupt(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*_COMMAND, "--watch"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert "8 pods with GPUs, 2 Pending." in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        output, error = watching.communicate(timeout=30)
    assert (watching.returncode, output, error) == (0, "", "")
