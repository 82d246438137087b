"""`python -m toolchain`, as a real process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.waiting import eventually
from toolchain.programs import ALL, ENGINE, KUBECTL, PACKAGE_HOST

_REPOSITORY = Path(__file__).parents[3]
_PROGRAMS = {
    "pulumi": "v3.260.0",
    "pulumi-language-python": "",
    "pulumi-language-python-exec": "",
    "pulumi-language-yaml": "",
    "pulumi-language-nodejs": "",
    "pulumi-resource-kubernetes": "",
    "etcd": "etcd Version: 3.6.6",
    "kube-apiserver": "Kubernetes v1.36.1",
    "kube-apiserver-1.34": "Kubernetes v1.34.1",
    "kube-controller-manager": "Kubernetes v1.36.1",
    "kube-scheduler": "Kubernetes v1.36.1",
    "kwok": "kwok version v0.8.0",
    "kubectl": "Client Version: v1.36.1",
    "helm": 'version.BuildInfo{Version:"v4.3.0", GitCommit:"1234567", GitTreeState:"clean", GoVersion:"go1.26.8"}',
    "crane": "0.22.1",
}


@pytest.fixture
def toolchain(tmp_path: Path) -> "Toolchain":
    """The command line on a PATH that holds scripts in place of every program."""
    (tmp_path / "bin").mkdir()
    for name, prints in _PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\necho '{prints}'\n")
        program.chmod(0o755)
    return Toolchain(tmp_path)


class Toolchain:
    """Runs `python -m toolchain` offline, with a PATH and a cache below one folder."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self._environment = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "KAI_ANYWHERE_CACHE": str(folder / "cache"),
            "KAI_ANYWHERE_OFFLINE": "1",
        }

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        """The running process."""
        return subprocess.Popen(
            [sys.executable, "-m", "toolchain", *arguments],
            cwd=_REPOSITORY,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The finished process."""
        return subprocess.run(
            [sys.executable, "-m", "toolchain", *arguments],
            cwd=_REPOSITORY,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )


def test_install_shows_program_version_source_and_path(toolchain: Toolchain) -> None:
    done = toolchain("install", "--group", "all")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["PROGRAM", "VERSION", "SOURCE", "PATH"]
    assert ["etcd", "3.6.6", "PATH", str(toolchain.bin / "etcd")] in rows
    # A stand-in that nobody needs who has an official pulumi: asked for by name.
    assert {row[0] for row in rows[1:]} == {program.name for program in ALL} - {PACKAGE_HOST.name}


def test_install_takes_a_group_or_single_programs(toolchain: Toolchain) -> None:
    assert len(toolchain("install", "--group", "engine").stdout.splitlines()) == 1 + 3
    assert len(toolchain("install", "--group", "simulator").stdout.splitlines()) == 1 + 6
    assert len(toolchain("install", "--group", "languages").stdout.splitlines()) == 1 + 2
    assert len(toolchain("install", "--group", "charts").stdout.splitlines()) == 1 + 1
    assert len(toolchain("install", "--group", "shell").stdout.splitlines()) == 1 + 4
    assert len(toolchain("install", "--group", "engine", "--group", "simulator").stdout.splitlines()) == 1 + 9
    assert len(toolchain("install", "etcd", "kwok").stdout.splitlines()) == 1 + 2
    unknown = toolchain("install", "terraform")
    assert unknown.returncode == 2
    assert "terraform" in unknown.stderr
    assert "pulumi-language-nodejs" in unknown.stderr


def test_a_shell_gets_no_language_host_that_nobody_asked_for(toolchain: Toolchain) -> None:
    (toolchain.bin / "pulumi-language-yaml").unlink()
    shown = toolchain("list", "--group", "shell").stdout
    assert {line.split()[0] for line in shown.splitlines()[1:]} == {program.name for program in (*ENGINE, KUBECTL)}
    assert "pulumi-language-yaml" not in shown
    assert "pulumi-language-yaml" in toolchain("list", "--group", "languages").stdout


def test_list_shows_what_is_missing_and_passed_over(toolchain: Toolchain) -> None:
    (toolchain.bin / "kwok").unlink()
    (toolchain.bin / "etcd").write_text("#!/bin/sh\necho etcd Version: 3.4.0\n")
    done = toolchain("list", "--group", "simulator")
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "missing" in rows["kwok"]
    assert "missing" in rows["etcd"]
    assert "PATH" in rows["kubectl"]
    assert "3.4.0" in done.stderr


def test_run_hands_on_arguments_output_and_exit_status(toolchain: Toolchain) -> None:
    script = toolchain.bin / "tell"
    script.write_text('#!/bin/sh\necho "$PATH"; echo "$@"; exit 7\n')
    script.chmod(0o755)
    done = toolchain("run", "--", "tell", "--group", "x y")
    assert done.returncode == 7
    assert done.stdout.splitlines() == [f"{Path(sys.executable).parent}{os.pathsep}{toolchain.bin}", "--group x y"]


def test_run_names_a_command_that_is_not_there(toolchain: Toolchain) -> None:
    done = toolchain("run", "--group", "engine", "--", "no-such-command")
    assert done.returncode == 127
    assert "'no-such-command'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_shown_without_a_traceback(toolchain: Toolchain) -> None:
    (toolchain.bin / "kwok").unlink()
    done = toolchain("install", "kwok")
    assert done.returncode == 1
    assert "kwok 0.8.0 can't be built" in done.stderr
    assert "What to do: install Go" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


_SLOW_GO = """#!/bin/sh
case "$1" in
env) echo '{"GOVERSION": "go1.99.0", "GOCACHE": "/nowhere/go-build"}';;
*) echo $$ > "$HOME/go.pid"; exec /bin/sleep 600;;
esac
"""


def test_whoever_ends_it_ends_the_build_too_and_finds_nothing_unfinished(toolchain: Toolchain, tmp_path: Path) -> None:
    (toolchain.bin / "kwok").unlink()
    (toolchain.bin / "go").write_text(_SLOW_GO)
    (toolchain.bin / "go").chmod(0o755)
    number = tmp_path / "go.pid"
    with toolchain.started("install", "kwok") as process:
        eventually(lambda: number.exists() and number.read_text())
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)
    assert [file.name for file in (tmp_path / "cache" / "toolchain").iterdir() if ".partial-" in file.name] == []
