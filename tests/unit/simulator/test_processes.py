"""Real processes: started, recognised, stopped."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator import processes
from simulator.errors import SimulatorError
from simulator.layout import Layout
from simulator.processes import Running
from simulator.programs import Command
from simulator.records import Ports, Records
from simulator.supervisor import Supervisor
from testbed.waiting import eventually

SLEEPER = "import time; time.sleep(60)"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Running]:
    """A process whose arguments name a program and a folder, as ours do."""
    arguments = [sys.executable, "-c", SLEEPER, "etcd", f"--data-dir={tmp_path}/etcd"]
    running = processes.start(arguments, {}, tmp_path, tmp_path / "log")
    yield running
    processes.stop(running)


def test_a_started_process_is_alive_in_a_session_of_its_own(sleeper: Running) -> None:
    assert processes.alive(sleeper)
    assert os.getsid(sleeper.pid) == sleeper.pid != os.getsid(0)


def test_a_python_built_for_an_old_glibc_starts_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As uv's are: their os.posix_spawn begins no session (Python 3.14.6, python-build-standalone of June 2026)."""
    monkeypatch.delattr(os, "posix_spawn")
    running = processes.start([sys.executable, "-c", SLEEPER], {}, tmp_path, tmp_path / "log")
    assert os.getsid(running.pid) == running.pid
    processes.stop(running)
    assert not processes.alive(running)


def test_a_stopped_process_is_gone(sleeper: Running) -> None:
    processes.stop(sleeper)
    assert not processes.alive(sleeper)
    processes.stop(sleeper)  # once more does nothing


def test_a_process_that_took_the_number_over_is_neither_alive_nor_stopped(sleeper: Running) -> None:
    earlier = Running(sleeper.pid, "another start")
    assert not processes.alive(earlier)
    processes.stop(earlier)
    assert processes.alive(sleeper)


def test_a_process_is_found_by_program_and_folder(sleeper: Running, tmp_path: Path) -> None:
    def processes_of(program: str, folder: Path) -> list[Running]:
        return list(processes.find(program, folder))

    eventually(lambda: processes_of("etcd", tmp_path) == [sleeper])
    assert processes_of("kwok", tmp_path) == []
    assert processes_of("etcd", tmp_path / "other") == []
    assert processes_of("etcd", tmp_path.parent / tmp_path.name[:-1]) == [], "a folder whose name only begins alike"


def test_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    shell = shutil.which("sh")
    assert shell
    running = processes.start([shell, "-c", "echo out; echo err >&2; echo $ONLY"], {"ONLY": "this"}, tmp_path, log)
    eventually(lambda: not processes.alive(running))
    assert log.read_text() == "before\nout\nerr\nthis\n"


def test_of_a_program_that_panics_the_reason_is_shown_and_not_where_it_was(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    layout.logs.mkdir()
    layout.sockets.mkdir()
    panic = "panic: no space left on device\n\ngoroutine 1 [running]:\n" + "main.main()\n\t/main.go:31 +0x28\n" * 9
    supervisor = Supervisor(layout, Records(ports=Ports(api_server=3, egress=4)), lambda _: None)
    supervisor.ensure(Command("etcd", ("/bin/sh", "-c", 'printf "%s" "$0"; exit 2', panic)))
    with pytest.raises(SimulatorError) as caught:
        supervisor.wait("etcd", lambda: False, "etcd ready")
    message = str(caught.value)
    assert message.startswith("etcd stopped right after its start.")
    assert "    panic: no space left on device\n" in message
    assert "main.main" not in message
    assert message.endswith("If it stays so, forget the simulator with `make reset`, then start anew.")


def _racing(tmp_path: Path, times: int) -> tuple[Supervisor, list[str]]:
    """A supervisor of a program that ends by a race that many times, and then runs; and what it reports."""
    layout, said = Layout.of(tmp_path), list[str]()
    layout.logs.mkdir()
    layout.sockets.mkdir()
    tries = tmp_path / "tries"
    tries.touch()
    script = (
        'echo x >> "$0"; [ $(wc -l < "$0") -gt "$1" ] && exec sleep 60; '
        "echo 'fatal error: concurrent map read and map write'; exit 2"
    )
    supervisor = Supervisor(layout, Records(ports=Ports(api_server=3, egress=4)), said.append)
    supervisor.ensure(Command("kwok", ("/bin/sh", "-c", script, str(tries), str(times))))
    return supervisor, said


def test_a_program_that_ends_by_a_race_within_it_is_started_once_more(tmp_path: Path) -> None:
    supervisor, said = _racing(tmp_path, times=1)
    try:
        supervisor.wait("kwok", lambda: (tmp_path / "tries").read_text() == "x\nx\n", "kwok ready")
    finally:
        supervisor.stop("kwok")
    assert said[0] == "kwok ended by a race within it: started again"


def test_a_program_that_ends_so_twice_is_a_failure_with_its_words(tmp_path: Path) -> None:
    supervisor, _ = _racing(tmp_path, times=9)
    with pytest.raises(SimulatorError, match=r"(?s)kwok stopped right after its start.*fatal error: concurrent map"):
        supervisor.wait("kwok", lambda: False, "kwok ready")
    assert (tmp_path / "tries").read_text() == "x\nx\n"
