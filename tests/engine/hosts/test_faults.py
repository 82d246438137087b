"""Hosts that can't be prepared: each is told by name, nothing changes there, and the next run converges."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.host_machines import content, hold, jetson, with_sudo, x86
from tests.support.host_stacks import LOGIN_KEY, HostsStack, ssh_host, tegra_stack
from tests.support.sshd import Sshd, needs_sshd
from tests.support.stacks import Json, changed
from tests.support.waiting import eventually

pytestmark = [pytest.mark.engine, needs_sshd]

_SUDO = "sudo-password"
_PASSWORD = "correct horse battery staple"


def _stack(folder: Path, hosts: dict[str, Json], server: Sshd, **secrets: str) -> HostsStack:
    return HostsStack(folder / "stack", tegra_stack(hosts), {LOGIN_KEY: server.private_key, **secrets})


def test_every_unfit_host_is_told_apart_and_the_fit_ones_are_prepared(shared_server: Sshd, tmp_path: Path) -> None:
    server = shared_server
    fit, behind_bastion, free_sudo = jetson(server), jetson(server), with_sudo(jetson(server), "x", free=True)
    bastion = server.machine("127.0.0.250")
    no_python, old_python, chatty = jetson(server), jetson(server), jetson(server)
    no_sudo, wrong_sudo, other_key = with_sudo(jetson(server), "x"), with_sudo(jetson(server), "x"), jetson(server)
    other_platform = x86(server)
    (no_python.folder / "bin" / "python3").unlink()
    no_python.program("command", "#!/bin/sh\nexit 1\n")
    old_python.python("/nonexistent/python3.6")
    chatty.program("timeout", "#!/bin/sh\necho Welcome to this machine\n")
    through = ssh_host(server, bastion)["ssh"]
    del through["dial"]
    hosts = {
        "fit": ssh_host(server, fit),
        "behind-bastion": changed(ssh_host(server, behind_bastion), "ssh.bastion", through),
        "free-sudo": ssh_host(server, free_sudo, sudo_password_secret=_SUDO),
        "chatty": ssh_host(server, chatty),
        "no-sudo": ssh_host(server, no_sudo),
        "wrong-sudo": ssh_host(server, wrong_sudo, sudo_password_secret=_SUDO),
        "other-key": changed(ssh_host(server, other_key), "ssh.host_key", _another_key(server)),
        "other-platform": ssh_host(server, other_platform),
    }
    machines = {
        "fit": fit,
        "behind-bastion": behind_bastion,
        "free-sudo": free_sudo,
        "chatty": chatty,
        "no-sudo": no_sudo,
        "wrong-sudo": wrong_sudo,
        "other-key": other_key,
        "other-platform": other_platform,
    }
    before = {name: content(machine.root) for name, machine in machines.items()}
    stack = _stack(tmp_path, hosts, server, **{_SUDO: _PASSWORD})
    output = stack.up("--continue-on-error", expect=1).output
    after = {name: content(machine.root) for name, machine in machines.items()}
    prepared = {"fit", "behind-bastion", "free-sudo"}
    assert {name for name in machines if after[name] != before[name]} == prepared
    for text in (
        "host 'chatty': its answer is not one of our agent",
        "host no-sudo: sudo refuses without a password",
        "incorrect password attempt",
        "host 'other-platform': the stack says that it is 'tegra', but it is 'x86'",
        "Host key verification failed",
    ):
        assert text in output, text
    assert _PASSWORD not in output
    assert "Traceback" not in output
    assert not list(other_key.home.iterdir()), "nothing is sent to a machine with another key"


def _another_key(server: Sshd) -> str:
    """A well-formed key that is not the server's."""
    kind, data = server.host_key.split()
    other = "B" if data[-10] == "A" else "A"
    return f"{kind} {data[:-10]}{other}{data[-9:]}"


def test_a_host_that_does_not_answer_is_a_bounded_error_and_gone_leaves_it(server: Sshd, tmp_path: Path) -> None:
    machine = jetson(server)
    stack = _stack(tmp_path, {"jetson-1": ssh_host(server, machine)}, server)
    stack.up()
    configured = content(machine.root)
    server.stop()
    failed = stack.destroy(expect=1)
    assert "failed attempts" in failed.output
    assert stack.resources(), "a host that could not be restored must not be forgotten"
    stack.settings = changed(
        changed(stack.settings, "hosts.jetson-1.gone", True),
        "platform.tegra_nodes.jetson-1",
        {"gpu_memory_mib": 20480},
    )
    stack.up()
    stack.destroy()
    assert stack.resources() == []
    assert content(machine.root) == configured


def test_a_host_that_was_never_reached_can_be_declared_gone(server: Sshd, tmp_path: Path) -> None:
    server.stop()
    stack = _stack(tmp_path, {"jetson-1": ssh_host(server, jetson(server))}, server)
    assert "failed attempts" in stack.up(expect=1).output
    stack.settings = changed(
        changed(stack.settings, "hosts.jetson-1.gone", True),
        "platform.tegra_nodes.jetson-1",
        {"gpu_memory_mib": 20480},
    )
    stack.up()
    stack.destroy()
    assert stack.resources() == []


def test_a_connection_that_is_cut_is_an_error_and_the_next_run_converges(server: Sshd, tmp_path: Path) -> None:
    machine = jetson(server)
    held = hold(machine, shutil.which("timeout") or "/usr/bin/timeout")
    stack = _stack(tmp_path, {"jetson-1": ssh_host(server, machine)}, server)
    with _beside(lambda: stack.up(expect=1)):
        eventually(held.with_suffix(".reached").exists, within_s=120)
        server.cut()
    held.unlink()
    assert stack.up().changed >= {"hosts-jetson-1-configured"}
    assert stack.up().changed == frozenset()


def test_a_host_that_reboots_while_it_is_dialled_is_waited_for(server: Sshd, tmp_path: Path) -> None:
    machine = jetson(server)
    before = content(machine.root)
    host = changed(ssh_host(server, machine), "ssh.dial.attempts", 60)
    stack = _stack(tmp_path, {"jetson-1": host}, server)
    server.stop()
    with _beside(stack.up) as engine:
        eventually(lambda: _dials(stack), within_s=120)
        assert engine.is_alive()
        server.start()
    assert content(machine.root) != before


def _dials(stack: HostsStack) -> bool:
    """Whether the plugin has begun to dial this stack's host."""
    return any(f"-F{stack.folder}" in line or "command-plugin-" in line for line in _command_lines())


def _command_lines() -> list[str]:
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return lines


class _beside:  # noqa: N801 - reads as a statement
    """Run something beside a block, wait for its end, and fail as it failed."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._error = error

    def __enter__(self) -> threading.Thread:
        self._thread.start()
        return self._thread

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error
