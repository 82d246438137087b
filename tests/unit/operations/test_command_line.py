"""What the command line says when it can't do its work: a text and status 1, never a traceback."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from operations.__main__ import app
from operations.exit_status import ExitStatus
from operations.stack_file import stack_names
from testbed.stacks import ROOT, STACK_FILES
from tests.support.command_tree import commands
from tests.support.full_disk import room_for

_EVERY_HELP = """
import sys, typer
from operations.__main__ import app
def show(command, *words):
    app([*words, "--help"], standalone_mode=False)
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        show(command.get_command(None, name), *words, name)
show(typer.main.get_command(app))
"""


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "operations", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_page_of_commands_groups_them_as_the_help_does() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?m)^\| ([^|`]+) \| \|\n((?:\|.*\n)+)", page)
    written = {group: set(re.findall(r"`([a-z-]+)", rows.replace("`--", ""))) for group, rows in tables}
    command_of = {words: command for words, command in commands().items() if " " not in words}
    assert len(command_of) > 20
    for name, command in command_of.items():
        assert command.name == name
        assert name in written[command.rich_help_panel], name


@pytest.mark.parametrize("columns", ["0", "40", "80"])
def test_a_narrow_terminal_cuts_nothing_of_any_help(columns: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", _EVERY_HELP],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": columns},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "--machine-memory-mib" in shown
    assert "--remove-definitions" in shown
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    # A path is cut wherever it is long.
    assert str(ROOT) not in shown


@pytest.mark.parametrize("command", ["up", "repair", "preview", "down", "preflight", "images"])
def test_an_unknown_stack_names_those_that_exist(command: str) -> None:
    done = _run(command, "--stack", "roof")
    assert done.returncode == 1
    assert f"There is no Pulumi.roof.yaml, so no such stack.\nStacks: {', '.join(stack_names(ROOT))}." in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", [["policy"], ["update", "--chart", "."]], ids=["policy", "update"])
@pytest.mark.parametrize(
    ("file", "says"),
    [("README.md", "There is no file Pulumi.<stack>.yaml in {}."), ("Pulumi.prod.yml", "{} has Pulumi.prod.yml: ")],
)
def test_a_command_for_every_stack_does_not_succeed_where_there_is_none(
    command: list[str], file: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).touch()
    for module in ("policy_check", "charts"):
        monkeypatch.setattr(f"operations.{module}.commands.ROOT", tmp_path)
    monkeypatch.setattr("operations.charts.commands.Helm.installed", lambda: None)
    monkeypatch.setattr("operations.charts.commands.read_chart", lambda _: None)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert str(done.exception).startswith(says.format(tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [["reset", "--stack"], ["doctor", "--stack"], ["plan", "--stack"], ["settings", "show"], ["review", "--stack"]],
)
@pytest.mark.parametrize("stack", ["..", "../..", "", "organization/kai-anywhere/prod", "a b"])
def test_a_stack_is_a_name_and_no_path(
    arguments: list[str], stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.target.ROOT", tmp_path / "checkout")
    (tmp_path / "project").mkdir()
    done = CliRunner().invoke(app, [*arguments, stack])
    assert f"{stack!r} is no stack name" in str(done.exception)
    assert (tmp_path / "project").is_dir(), "somebody else's"


def test_a_full_disk_is_told_where_the_output_goes() -> None:
    command = [sys.executable, "-m", "operations", "settings", "list"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("The output can't be written or read: No space left on device.")


@pytest.mark.parametrize(
    ("words", "closed", "status"),
    [
        ("plan --gpu-memory-mib 1000 --request-mib 100", ">&-", ExitStatus.WELL),
        ("init folder --stack prod --repository https://github.com/e/k", "<&-", ExitStatus.COULD_NOT_RUN),
    ],
)
def test_a_stream_that_is_closed_is_no_traceback(words: str, closed: str, status: ExitStatus, tmp_path: Path) -> None:
    shell = f"exec {ROOT}/bin/kai-anywhere {words} {closed}"
    done = subprocess.run(["/bin/sh", "-c", shell], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == status
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_a_file_is_told_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in ("file", "file/within"):
        done = _run("fleet", "update", "eu-1", "--out", str(tmp_path / out))
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert done.stderr.startswith(str(tmp_path / out))
        assert "choose another place" in done.stderr


@pytest.mark.parametrize(
    "command", ["stacks", "init --stack a --platform x86 --distribution k3s --repository https://github.com/e/k"]
)
def test_a_folder_that_was_removed_under_the_command_is_told(command: str, tmp_path: Path) -> None:
    shell = f'mkdir here && cd here && rmdir "$PWD" && exec {ROOT}/bin/kai-anywhere {command}'
    done = subprocess.run(["/bin/sh", "-c", shell], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == ExitStatus.COULD_NOT_RUN
    assert done.stderr.endswith("The folder in which this runs was removed. Change into one that is there.\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("folder", ["loop", "x" * 300])
def test_a_folder_that_no_system_opens_is_told_without_a_traceback(folder: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = _run("fleet", "plan", "--folder", str(tmp_path / folder))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.endswith("choose another place.\n")


def test_a_lock_file_that_can_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.charts.commands.ROOT", STACK_FILES)
    monkeypatch.setattr("operations.charts.commands.Helm.installed", lambda: None)
    monkeypatch.setattr("operations.charts.commands.stack_images.images", lambda *_: ())
    with room_for(10):
        done = CliRunner().invoke(app, ["images", "--no-digests", "--lock", str(tmp_path / "images.json")])
    assert "images.json can't be written: File too large. Choose another one with --lock." in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    done = _run("up", PATH=str(Path(sys.executable).parent), KAI_ANYWHERE_CACHE=str(blocked), KAI_ANYWHERE_OFFLINE="1")
    assert done.returncode == 1
    assert str(blocked) in done.stderr
    assert "Traceback" not in done.stderr


def test_resetting_what_was_never_started_is_no_error() -> None:
    done = _run("reset", "--stack", "never-started")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The simulator of stack 'never-started' was never started.\n"


def test_a_second_reset_finds_no_simulator_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.target.ROOT", tmp_path)
    place = tmp_path / ".simulator" / "jetson"
    (place / "cluster").mkdir(parents=True)
    (place / "command.lock").touch()
    first, second = (CliRunner().invoke(app, ["reset"]).output for _ in range(2))
    assert first == "The simulator of stack 'jetson' is gone, with its data.\n"
    assert second == "The simulator of stack 'jetson' was never started.\n"


def test_a_simulator_that_another_command_works_on_is_not_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.target.ROOT", tmp_path)
    state = tmp_path / ".simulator" / "jetson" / "state"
    state.mkdir(parents=True)
    with FileLock(state.parent / "command.lock"):
        done = CliRunner().invoke(app, ["reset"])
    assert "Another command works on the simulator of stack 'jetson'." in str(done.exception)
    assert state.is_dir(), "pulumi would go on for hours against an API server that is gone"


def test_the_command_runs_from_any_folder_and_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "kai"
    link.symlink_to(ROOT / "bin" / "kai-anywhere")
    done = subprocess.run([link, "reset", "--stack", "x-y"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The simulator of stack 'x-y' was never started.\n"
    done = subprocess.run([link, "reset", "--stack", "x y"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "'x y' is no stack name" in done.stderr, "it arrives whole"
    assert [path.name for path in tmp_path.iterdir()] == ["kai"]


def test_a_checkout_without_its_environment_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = shutil.copy(ROOT / "bin" / "kai-anywhere", tmp_path / "bin")
    done = subprocess.run([script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"The Python environment is not installed: make -C '{tmp_path}' install\n"


def test_an_environment_whose_packages_are_gone_is_removed_before_it_is_installed_again(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = shutil.copy(ROOT / "bin" / "kai-anywhere", tmp_path / "bin")
    (tmp_path / "operations").symlink_to(ROOT / "operations")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    done = subprocess.run([script], check=False, capture_output=True, text=True, env={"PYTHONNOUSERSITE": "1"})
    assert (done.returncode, done.stdout) == (1, "")
    first, advice = done.stderr.split(": ", 1)
    assert first.startswith("The Python environment has no ")
    words = shlex.split(advice)
    assert words == ["rm", "-rf", f"{tmp_path}/.venv", "&&", "make", "-C", f"{tmp_path}", "install"]


def test_an_environment_that_lacks_what_one_command_needs_is_told_by_that_command(tmp_path: Path) -> None:
    gone = "raise ModuleNotFoundError(\"No module named 'lightkube'\", name='lightkube')"
    (tmp_path / "lightkube.py").write_text(gone, encoding="utf-8")
    command = [str(ROOT / "bin" / "kai-anywhere"), "status", "--stack", "jetson"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The Python environment has no lightkube, as after an upgrade of Python or of")


def test_letters_that_the_encoding_lacks_are_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    pod = {"containers": [{"name": "main"}], "schedulerName": "kai-scheduler"}
    document = {"kind": "Pod", "metadata": {"name": "\u65e5", "annotations": {"gpu-memory": "1000"}}, "spec": pod}
    file.write_text(json.dumps(document), encoding="utf-8")
    done = _run("plan", "--gpu-memory-mib", "131072", "--file", str(file), PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u65e5 1000" in done.stdout


def test_a_table_has_no_lines_that_the_encoding_lacks() -> None:
    done = _run("--version", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Program" in done.stdout
    assert "\\u" not in done.stdout


def test_nothing_that_an_error_quotes_commands_the_terminal(tmp_path: Path) -> None:
    """Manifests may come from anybody."""
    file = tmp_path / "pods.yaml"
    pod = {"containers": [{"name": "main"}], "schedulerName": "kai-scheduler"}
    metadata = {"name": "x", "annotations": {"gpu-memory": "\x1b[2J1000\r"}}
    file.write_text(json.dumps({"kind": "Pod", "metadata": metadata, "spec": pod}), encoding="utf-8")
    done = _run("plan", "--gpu-memory-mib", "131072", "--file", str(file))
    assert done.stderr == (
        "pods.yaml: Pod x: gpu-memory is ' [2J1000 ': give MiB as a whole number above 0, without a unit\n"
    )


def test_wrong_options_end_with_the_status_of_usage() -> None:
    done = _run("up", "--speed", "fast")
    assert done.returncode == ExitStatus.USAGE
    assert "No such option: --speed" in done.stderr
    assert "kai-anywhere up" in done.stderr
    assert done.stdout == ""
