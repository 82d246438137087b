"""The agent killed before every single act on the disk and every restart, and a disk that is full or read-only."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from config.cluster import Distribution
from tests.hosts.conftest import equip
from tests.support.hosts.roots import (
    Answer,
    Board,
    Serve,
    desired,
    install_toolkit,
    prepare,
)
from tests.support.programs import CONTAINERD, NVIDIA_CTK
from toolchain import Program

pytestmark = pytest.mark.engine

_WANTED = desired(Board.JETPACK_6, toolkit={"owner": "host", "mode": "csv"})
_CHANGING = ("etc", "var")


class Victim:
    """A kubeadm host, reset to how it was before each run."""

    def __init__(self, folder: Path, programs: Mapping[Program, Path], serve: Serve) -> None:
        self.host = prepare(folder / "host", Board.JETPACK_6, Distribution.KUBEADM)
        install_toolkit(self.host)
        self.calls = serve(self.host, Distribution.KUBEADM)
        equip(self.host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], self.calls)
        self.acts = folder / "acts"
        self.before = self.host.snapshot()
        self._kept = folder / "kept"
        self.keep("before")

    def killed(self, number: int, command: str) -> bool:
        """Run the agent until right before its act of that number; False when it ended by itself, well."""
        killing = (sys.executable, "-m", "tests.support.killing")
        done = subprocess.run(
            [
                *killing,
                str(number),
                str(self.host.folder),
                str(self.acts),
                "--",
                command,
                "--root",
                str(self.host.folder),
            ],
            input=json.dumps(_WANTED).encode(),
            env=self.host.environment(),
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr.decode()
        return done.returncode != 0

    def keep(self, name: str) -> None:
        """Keep a copy of what the agent may change."""
        for folder in _CHANGING:
            shutil.copytree(self.host.path(folder), self._kept / name / folder, symlinks=True)

    def reset(self, name: str) -> None:
        """Put a kept copy back."""
        for folder in _CHANGING:
            shutil.rmtree(self.host.path(folder))
            shutil.copytree(self._kept / name / folder, self.host.path(folder), symlinks=True)


@pytest.fixture
def victim(tmp_path: Path, programs: Mapping[Program, Path], serve: Serve) -> Iterator[Victim]:
    yield Victim(tmp_path, programs, serve)
    shutil.rmtree(tmp_path, ignore_errors=True)


def _content(snapshot: Mapping[str, tuple[int, object]], name: str) -> object:
    return snapshot[name][1] if name in snapshot else None


def test_killed_anywhere_a_second_run_ends_the_work_and_restore_gives_the_exact_originals(victim: Victim) -> None:
    assert victim.killed(0, "configure") is False
    acts = victim.acts.read_text().splitlines()
    snapshot = victim.host.snapshot()
    files = [name for name in snapshot if snapshot[name] != victim.before.get(name) and name.endswith(".toml")]
    assert len(files) == 4
    assert {act.split()[0] for act in acts} >= {"open", "write", "fsync", "replace", "mkdir", "restart"}
    assert victim.host.run("restore").code == 0
    assert victim.host.snapshot() == victim.before

    for number in range(1, len(acts) + 1):
        where = f"killed before act {number}, {acts[number - 1]}"
        assert victim.killed(number, "configure") is True, where
        halfway = victim.host.snapshot()
        assert not [name for name in halfway if "/conf.d/." in name], "containerd may import every file of the folder"
        for name in files:
            assert _content(halfway, name) in {_content(victim.before, name), _content(snapshot, name)}, where
        # One half goes on, the other half goes back.
        if number % 2:
            run = victim.host.run("configure", desired=_WANTED)
            assert run.code == 0, (where, run.errors)
            after = victim.host.snapshot()
            assert {name: after[name] for name in files} == {name: snapshot[name] for name in files}, where
            victim.reset("before")
        else:
            assert victim.host.run("restore").code == 0, where
            assert victim.host.snapshot() == victim.before, where


def test_a_kill_before_the_restart_does_not_lose_the_restart(victim: Victim) -> None:
    assert victim.killed(0, "configure") is False
    restart = next(n for n, act in enumerate(victim.acts.read_text().splitlines(), 1) if act.startswith("restart"))
    assert victim.host.run("restore").code == 0
    victim.calls.unlink()
    assert victim.killed(restart, "configure") is True
    assert not victim.calls.exists()
    assert victim.host.run("check", desired=_WANTED).code == 3
    assert victim.host.run("configure", desired=_WANTED).answer["restarted"] == ["containerd"]
    assert victim.calls.read_text().splitlines() == ["systemctl restart containerd"]


def test_a_restore_killed_anywhere_ends_with_the_next(victim: Victim) -> None:
    assert victim.host.run("configure", desired=_WANTED).code == 0
    victim.keep("configured")
    assert victim.killed(0, "restore") is False
    acts = victim.acts.read_text().splitlines()
    assert victim.host.snapshot() == victim.before
    for number in range(1, len(acts) + 1):
        where = f"killed before act {number}, {acts[number - 1]}"
        victim.reset("configured")
        assert victim.killed(number, "restore") is True, where
        assert victim.host.run("restore").code == 0, where
        assert victim.host.snapshot() == victim.before, where


def _mounted(victim: Victim, options: str, *arguments: str, fill: bool) -> Answer:
    """Run the agent where /etc/containerd is a file system of its own, in a mount namespace of its own."""
    folder = victim.host.path("/etc/containerd")
    kept = victim.host.folder.parent / "containerd"
    if not kept.exists():
        shutil.copytree(folder, kept)
    full = f"head -c 1M /dev/zero > {folder}/filler 2>/dev/null" if fill else "true"
    script = (
        f"mount -t tmpfs -o size=64k tmpfs {folder} && cp -a {kept}/. {folder} || exit 99; {full}; "
        f'mount -o remount,{options} {folder} && "$@"; code=$?; rm -f {folder}/filler; '
        f"ls -A {folder} >&2; cat {folder}/config.toml >&2; exit $code"
    )
    agent = ("unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "agents.host")
    path = f"{victim.host.programs}:{os.environ['PATH']}"
    return victim.host.run(*arguments, desired=_WANTED, agent=agent, environment={"PATH": path})


@pytest.mark.parametrize(
    ("options", "fill", "says"),
    [("rw,size=64k", True, "No space left on device"), ("ro", False, "Read-only file system")],
    ids=["full", "read-only"],
)
def test_a_full_or_read_only_disk_changes_nothing(options: str, fill: bool, says: str, victim: Victim) -> None:
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("needs the right to mount in a namespace of its own")
    run = _mounted(victim, options, "configure", fill=fill)
    assert run.code == 1
    assert says in run.answer["error"]["message"]
    assert "# kept by hand" in run.errors
    assert "imports" not in run.errors.rpartition("# kept by hand")[2]
    assert ".kai-anywhere" not in run.errors.rpartition("remedy")[2]
    assert run.answer["rolled_back"] is True
    assert victim.host.run("restore").code == 0
    assert victim.host.snapshot() == victim.before
