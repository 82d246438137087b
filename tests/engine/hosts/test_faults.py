"""Hosts that can't be prepared: each is told by name, nothing changes there, and the next run converges."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from socket import socket

import pytest

from testbed.hosts.machines import chatty, content, hold, jetson, with_sudo, x86
from testbed.hosts.sshd import Machine, Sshd, needs_sshd, serving
from testbed.hosts.stacks import LOGIN_KEY, HostsStack, another_key, ssh_host, tegra_stack
from testbed.stacks import Json, changed, without
from testbed.waiting import eventually

pytestmark = needs_sshd

_SUDO = "sudo-password"
_PASSWORD = "correct horse battery staple"


def _stack(folder: Path, hosts: dict[str, Json], server: Sshd, **secrets: str) -> HostsStack:
    return HostsStack(folder / "stack", tegra_stack(hosts), {LOGIN_KEY: server.private_key, **secrets})


def _never_in_force(machine: Machine) -> Machine:
    """A machine on which `check` fails once it is configured, so that its `up` never ends well."""
    script = '#!/bin/sh\ncase " $* " in *" check "*) exit 3 ;; esac\nexec {timeout} "$@"\n'
    machine.program("timeout", script.format(timeout=shutil.which("timeout")))
    return machine


def test_each_host_that_refuses_is_told_by_name_the_others_are_prepared_and_destroy_gives_back_what_was_changed(
    shared_server: Sshd, tmp_path: Path
) -> None:
    server = shared_server
    machines = {
        "fit": jetson(server),
        "behind-bastion": jetson(server),
        "free-sudo": with_sudo(jetson(server), "another", free=True),
        "no-sudo": with_sudo(jetson(server), "another"),
        "wrong-sudo": with_sudo(jetson(server), "another"),
        "other-key": jetson(server),
        "not-in-force": _never_in_force(jetson(server)),
    }
    hosts = {name: ssh_host(server, machine) for name, machine in machines.items()}
    bastion = {key: value for key, value in hosts["fit"]["ssh"].items() if key != "dial"}
    hosts["behind-bastion"]["ssh"]["bastion"] = bastion | {"address": "127.0.0.2"}
    hosts["free-sudo"]["sudo_password_secret"] = _SUDO
    hosts["wrong-sudo"]["sudo_password_secret"] = _SUDO
    hosts["other-key"]["ssh"]["host_key"] = another_key(server)
    before = {name: content(machine.root) for name, machine in machines.items()}
    stack = _stack(tmp_path, hosts, server, **{_SUDO: _PASSWORD})
    output = stack.up("--continue-on-error", expect=1).output
    changed_hosts = {name for name, machine in machines.items() if content(machine.root) != before[name]}
    assert changed_hosts == {"fit", "behind-bastion", "free-sudo", "not-in-force"}
    assert "host not-in-force: it was configured, but that is not in force" in output
    assert "host no-sudo: sudo refuses without a password" in output
    assert "incorrect password attempt" in output
    assert "Host key verification failed" in output
    assert _PASSWORD not in output
    assert "Traceback" not in output
    assert not list(machines["other-key"].home.iterdir()), "nothing is sent to a machine with another key"
    stack.destroy()
    assert stack.resources() == []
    assert {name: content(machine.root) for name, machine in machines.items()} == before
    assert [name for name, machine in machines.items() if list(machine.home.iterdir())] == [], "the agent must not stay"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (x86, ("host 'other': the stack says that it is 'tegra', but it is 'x86', x86_64", "Remove 'other' from")),
        (chatty, ("host 'other': its answer is not one of our agent", "it must be silent without a terminal")),
    ],
)
def test_a_host_that_is_not_what_the_stack_says_is_left_alone_and_the_next_run_goes_on(
    make: Callable[[Sshd], Machine], says: tuple[str, ...], shared_server: Sshd, tmp_path: Path
) -> None:
    fit, other = jetson(shared_server), make(shared_server)
    hosts = {"fit": ssh_host(shared_server, fit), "other": ssh_host(shared_server, other)}
    before = content(fit.root), content(other.root)
    stack = _stack(tmp_path, hosts, shared_server)
    output = stack.up(expect=1).output
    assert content(other.root) == before[1]
    for text in says:
        assert text in output
    stack.settings = without(without(stack.settings, "hosts.other"), "platform.tegra_nodes.other")
    stack.up()
    assert content(fit.root) != before[0]
    assert content(other.root) == before[1]


def test_hosts_that_answer_no_more_or_never_did_are_bounded_errors_and_gone_leaves_them(
    server: Sshd, tmp_path: Path
) -> None:
    machines = {name: jetson(server) for name in ("answered", "never-reached")}
    hosts = {name: ssh_host(server, machine) for name, machine in machines.items()}
    with socket() as nobody:
        # Taken, so that nobody else listens there.
        nobody.bind(("", 0))
        hosts["never-reached"]["ssh"]["port"] = nobody.getsockname()[1]
        stack = _stack(tmp_path, hosts, server)
        failed = stack.up("--continue-on-error", expect=1)
        assert "failed attempts" in failed.output
        assert not list(machines["never-reached"].home.iterdir())
        configured = content(machines["answered"].root)
        assert configured != content(machines["never-reached"].root)
        server.stop()
        failed = stack.destroy(expect=1)
        assert "failed attempts" in failed.output
        assert _remembered(stack) == {"answered"}, "a host that could not be restored must not be forgotten"
        for name in hosts:
            stack.settings = changed(
                changed(stack.settings, f"hosts.{name}.gone", True),
                f"platform.tegra_nodes.{name}",
                {"gpu_memory_mib": 20480},
            )
        stack.up()
        stack.destroy()
    assert stack.resources() == []
    assert content(machines["answered"].root) == configured


def _remembered(stack: HostsStack) -> set[str]:
    """The hosts that a stack knows how to give back."""
    names = (str(resource["urn"]).rsplit("::", 1)[1] for resource in stack.resources())
    return {name.removeprefix("hosts-").removesuffix("-probe") for name in names if name.endswith("-probe")}


def test_hosts_that_are_lost_mid_command_are_an_error_and_the_next_run_converges(server: Sshd, tmp_path: Path) -> None:
    with serving(tmp_path / "rebooting") as rebooting:
        machines = {"cut": jetson(server), "reboots": jetson(rebooting)}
        hosts = {"cut": ssh_host(server, machines["cut"]), "reboots": ssh_host(rebooting, machines["reboots"])}
        hosts["reboots"]["ssh"]["private_key_secret"] = "rebooting-key"
        held = [hold(machine) for machine in machines.values()]
        stack = _stack(tmp_path, hosts, server, **{"rebooting-key": rebooting.private_key})
        with _beside(lambda: stack.up(expect=1)):
            for host in held:
                eventually(host.with_suffix(".reached").exists, within_seconds=120)
            server.cut()
            rebooting.stop()
        assert _remembered(stack) == {"cut", "reboots"}, "what was begun there must be taken back by `destroy`"
        for host in held:
            host.unlink()
        rebooting.start()
        assert stack.up().changed >= {"hosts-cut-configured", "hosts-reboots-configured"}
        assert stack.up().changed == frozenset()


def test_a_destroy_that_was_killed_before_it_noted_what_a_host_was_given_back_ends_with_the_next(
    shared_server: Sshd, tmp_path: Path
) -> None:
    machine = jetson(shared_server)
    before = content(machine.root)
    stack = _stack(tmp_path, {"jetson-1": ssh_host(shared_server, machine)}, shared_server)
    stack.up()
    exported = stack.folder / "before-the-destroy.json"
    stack.run("stack", "export", "--file", str(exported))
    stack.destroy()
    assert (content(machine.root), list(machine.home.iterdir())) == (before, [])
    stack.run("stack", "import", "--file", str(exported))
    assert _remembered(stack) == {"jetson-1"}
    stack.destroy()
    assert stack.resources() == []
    assert content(machine.root) == before


def test_a_host_that_reboots_while_it_is_dialled_is_waited_for_and_another_board_can_take_its_place(
    server: Sshd, tmp_path: Path
) -> None:
    machine = jetson(server)
    before = content(machine.root)
    host = changed(ssh_host(server, machine), "ssh.dial.attempts", 60)
    stack = _stack(tmp_path, {"jetson-1": host}, server)
    server.stop()
    with _beside(stack.up) as engine:
        eventually(stack.is_dialling, within_seconds=120)
        assert engine.is_alive()
        server.start()
    configured = content(machine.root)
    assert configured != before
    board = jetson(server)
    stack.settings = changed(stack.settings, "hosts.jetson-1.ssh.address", board.address)
    stack.up()
    assert content(board.root) != before
    assert content(machine.root) == configured, "nothing is restored at the old address"
    assert stack.up().changed == frozenset()


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
