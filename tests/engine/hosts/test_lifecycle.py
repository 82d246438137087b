"""One host from the first preview to the last byte restored."""

import json
from collections.abc import Iterator

import pytest

from testbed.hosts.machines import JETSON_MEMORY_MIB, TOOLKIT_CONFIG, content, jetson, with_sudo
from testbed.hosts.sshd import Machine, Sshd, needs_sshd, serving
from testbed.hosts.stacks import LOGIN_KEY, HostsStack, ssh_host, tegra_stack
from testbed.stacks import changed
from tests.support.processes import sampled_command_lines

pytestmark = needs_sshd

_SUDO = "sudo-password"
_PASSWORD = "correct horse battery staple"
_COMMANDS = {"hosts-jetson-1-agent", "hosts-jetson-1-probe", "hosts-jetson-1-configured"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with serving(tmp_path_factory.mktemp("sshd") / "own") as server:
        yield server


@pytest.fixture(scope="module")
def machine(server: Sshd) -> Machine:
    return with_sudo(jetson(server), _PASSWORD)


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, str]:
    return content(machine.root)


@pytest.fixture(scope="module")
def stack(
    server: Sshd, machine: Machine, before: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> HostsStack:
    assert before
    host = ssh_host(server, machine, sudo_password_secret=_SUDO)
    secrets = {LOGIN_KEY: server.private_key, _SUDO: _PASSWORD}
    return HostsStack(tmp_path_factory.mktemp("stack") / "own", tegra_stack({"jetson-1": host}), secrets)


class TestOneHost:
    """In the order of a host's life."""

    def test_a_preview_needs_no_host(self, stack: HostsStack, server: Sshd, machine: Machine) -> None:
        server.stop()
        preview = stack.preview()
        server.start()
        assert preview.changed >= _COMMANDS
        assert not list(machine.home.iterdir())

    def test_the_first_up_configures_the_host_and_shows_no_secret(
        self, stack: HostsStack, server: Sshd, machine: Machine, before: dict[str, str]
    ) -> None:
        with sampled_command_lines() as command_lines:
            done = stack.up("--logtostderr", "-v=5")
        assert content(machine.root) != before
        assert stack.output("gpu_memory_mib") == {"jetson-1": JETSON_MEMORY_MIB - 2048}
        assert any("kai-host.pyz" in line for line in command_lines), "the sampling must see the agent"
        everything = {
            "output": done.output,
            "state": json.dumps(stack.resources()),
            "process list": "\n".join(command_lines),
            "sshd's log": server.log,
            **{str(path): path.read_text(errors="replace") for path in stack.folder.rglob("*") if path.is_file()},
        }
        for secret in (_PASSWORD, server.private_key.splitlines()[2]):
            assert [where for where, text in everything.items() if secret in text] == []

    def test_a_refresh_and_a_second_up_change_nothing(self, stack: HostsStack, machine: Machine) -> None:
        configured = content(machine.root)
        stack.refresh()
        assert stack.up().changed == frozenset()
        assert content(machine.root) == configured

    def test_a_changed_setting_configures_again_and_asks_nothing_else(
        self, stack: HostsStack, machine: Machine
    ) -> None:
        assert 'mode = "csv"' in machine.path(TOOLKIT_CONFIG).read_text(encoding="utf-8")
        stack.settings = changed(stack.settings, "platform.container_runtime_mode", "cdi")
        assert stack.up().changed == {"hosts-jetson-1-configured"}
        assert 'mode = "cdi"' in machine.path(TOOLKIT_CONFIG).read_text(encoding="utf-8")

    def test_a_drift_is_an_error_where_every_up_asks(self, stack: HostsStack, machine: Machine) -> None:
        stack.settings = changed(stack.settings, "hosts.jetson-1.check", "always")
        assert stack.up().changed == {"hosts-jetson-1-check"}
        file = machine.path(TOOLKIT_CONFIG)
        file.write_text(file.read_text(encoding="utf-8").replace('"cdi"', '"legacy"'), encoding="utf-8")
        failed = stack.up(expect=1)
        assert "host jetson-1: not everything is in force any more" in failed.output
        assert "Raise hosts.jetson-1.revision" in failed.output

    def test_a_raised_revision_repairs_the_drift(self, stack: HostsStack, machine: Machine) -> None:
        stack.settings = changed(stack.settings, "hosts.jetson-1.revision", 1)
        assert stack.up().changed == _COMMANDS | {"hosts-jetson-1-check"}
        assert 'mode = "cdi"' in machine.path(TOOLKIT_CONFIG).read_text(encoding="utf-8")

    def test_destroy_gives_every_byte_back(self, stack: HostsStack, machine: Machine, before: dict[str, str]) -> None:
        stack.destroy()
        assert content(machine.root) == before
        assert not list(machine.home.iterdir()), "the agent must not stay"
        assert stack.resources() == []
