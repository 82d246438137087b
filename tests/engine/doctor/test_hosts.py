"""`doctor --hosts` asks real hosts over a real sshd, and leaves nothing there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import toolchain
from operations.doctor.hosts.answer import HostLookError, HostReport
from operations.doctor.hosts.asking import ask
from operations.doctor.hosts.secrets import read_secrets
from testbed.hosts import command_plugin
from testbed.hosts.machines import JETSON_MEMORY_MIB, content, jetson, with_sudo
from testbed.hosts.sshd import Sshd, needs_sshd, serving
from testbed.hosts.stacks import ENGINE_PROGRAMS, LOGIN_KEY, HostsStack, another_key, ssh_host, tegra_stack
from testbed.stacks import parse
from tests.support.processes import sampled_command_lines

pytestmark = needs_sshd

_SUDO = "sudo-password"
_PASSWORD = "correct horse battery staple"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    with serving(tmp_path / "sshd") as server:
        yield server


def _environment(folder: Path) -> dict[str, str]:
    return command_plugin.environment(folder / "plugin", toolchain.environment(ENGINE_PROGRAMS))


def test_hosts_are_asked_as_pulumi_up_reaches_them_and_nothing_stays(server: Sshd, tmp_path: Path) -> None:
    machine, plain, other, shut = (jetson(server) for _ in range(4))
    with_sudo(machine, _PASSWORD)
    hosts = {
        "with-sudo": ssh_host(server, machine, sudo_password_secret=_SUDO),
        "plain": ssh_host(server, plain),
        "other-key": ssh_host(server, other),
        "shut": ssh_host(server, shut),
    }
    hosts["other-key"]["ssh"]["host_key"] = another_key(server)
    hosts["shut"]["ssh"]["port"] = 1
    before = {host.address: content(host.root) for host in (machine, plain)}

    secrets = {LOGIN_KEY: server.private_key, _SUDO: _PASSWORD}
    with sampled_command_lines() as command_lines:
        reports = ask(parse(tegra_stack(hosts)), secrets, _environment(tmp_path))

    assert {node: bool(report.examination) for node, report in reports.items()} == {
        "other-key": False,
        "plain": True,
        "shut": False,
        "with-sudo": True,
    }
    assert _memory(reports["with-sudo"]) == _memory(reports["plain"]) == JETSON_MEMORY_MIB
    plain_answer, heard_at = reports["plain"].examination, reports["plain"].heard_at
    assert plain_answer is not None
    assert heard_at is not None
    assert 0 <= heard_at - plain_answer.clock < 60, "its clock is this machine's"
    assert "Host key verification failed" in reports["other-key"].trouble
    assert "Connection refused" in reports["shut"].trouble
    assert {host.address: content(host.root) for host in (machine, plain)} == before
    assert [*machine.home.iterdir(), *plain.home.iterdir()] == [], "the agent must not stay"
    assert any("examine" in line for line in command_lines), "the sampling must see the agent"
    for secret in (_PASSWORD, server.private_key.splitlines()[2]):
        assert [line for line in command_lines if secret in line] == []


def _memory(report: HostReport) -> int:
    assert report.examination is not None
    return report.examination.probe.memory.total_mib


def test_a_wrong_sudo_password_is_tried_once_and_the_host_is_looked_at_without(server: Sshd, tmp_path: Path) -> None:
    machine = with_sudo(jetson(server), _PASSWORD)
    stack = parse(tegra_stack({"jetson-1": ssh_host(server, machine, sudo_password_secret=_SUDO)}))
    reports = ask(stack, {LOGIN_KEY: server.private_key, _SUDO: "wrong"}, _environment(tmp_path))
    assert _memory(reports["jetson-1"]) == JETSON_MEMORY_MIB


def test_a_stack_that_somebody_has_exported_for_other_work_is_not_in_the_way_of_a_look(
    server: Sshd, tmp_path: Path
) -> None:
    stack = parse(tegra_stack({"jetson-1": ssh_host(server, jetson(server))}))
    environment = _environment(tmp_path) | {"PULUMI_OPTION_STACK": "another"}
    assert _memory(ask(stack, {LOGIN_KEY: server.private_key}, environment)["jetson-1"]) == JETSON_MEMORY_MIB


def test_a_host_on_which_the_look_itself_fails_is_reported_with_what_the_host_said(
    server: Sshd, tmp_path: Path
) -> None:
    machines = {name: jetson(server) for name in ("expired", "failing", "silent")}
    # As a login whose password has expired, which a login's shell is not even started for.
    machines["expired"].program(
        "python3", "#!/bin/sh\necho 'Password change required but no TTY available.' >&2\nexit 1\n"
    )
    error = {"error": {"message": "The look is bound to fail.", "remedy": "Let it."}}
    machines["failing"].program(
        "python3", f"#!/bin/sh\necho 'The look fails.' >&2\necho '{json.dumps(error)}'\nexit 1\n"
    )
    machines["silent"].program("python3", "#!/bin/sh\nexit 7\n")
    hosts = {name: ssh_host(server, machine) for name, machine in machines.items()}
    reports = ask(parse(tegra_stack(hosts)), {LOGIN_KEY: server.private_key}, _environment(tmp_path))
    assert {node: report.trouble for node, report in reports.items()} == {
        "expired": "Process exited with status 1: Password change required but no TTY available.",
        "failing": "The look is bound to fail. Let it.",
        "silent": "Process exited with status 7",
    }


def test_secrets_come_from_the_stack_and_what_is_missing_is_said(server: Sshd, tmp_path: Path) -> None:
    host = ssh_host(server, jetson(server), sudo_password_secret=_SUDO)
    stack = HostsStack(tmp_path / "stack", tegra_stack({"jetson-1": host}), {LOGIN_KEY: server.private_key})
    hosts = parse(stack.settings).hosts
    with pytest.raises(HostLookError, match=f"the secret '{_SUDO}', which host 'jetson-1' needs, is not set"):
        read_secrets(stack.name, hosts, stack.folder, stack.environment)
    stack.set_secret(_SUDO, _PASSWORD)
    values = read_secrets(stack.name, hosts, stack.folder, stack.environment)
    assert values == {LOGIN_KEY: server.private_key.rstrip(), _SUDO: _PASSWORD}
    file = stack.folder / f"Pulumi.{stack.name}.yaml"
    said = yaml.safe_load(file.read_text(encoding="utf-8"))
    said["config"][f"kai-anywhere:{_SUDO}"] = "shown"
    file.write_text(yaml.safe_dump(said), encoding="utf-8")
    with pytest.raises(HostLookError, match="stands in the stack file in plain text"):
        read_secrets(stack.name, hosts, stack.folder, stack.environment)
