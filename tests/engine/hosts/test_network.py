"""Hosts in network namespaces of their own: a bastion that is the only way, and a link that goes down.

Where this machine makes no namespaces these are skipped with the reason; test_faults.py has a bastion and a cut
connection on loopback.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.hosts import command_plugin
from testbed.hosts.machines import TOOLKIT_CONFIG, content, hold, jetson_at
from testbed.hosts.sshd import needs_sshd
from testbed.hosts.stacks import LOGIN_KEY, HostsStack, another_key, ssh_host, tegra_stack
from testbed.stacks import Json, changed
from testbed.waiting import eventually
from tests.support.hosts.network_site import NoNamespacesError, Site, site

pytestmark = needs_sshd

_NEAR_KEY = "near-key"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Site]:
    try:
        with site(tmp_path / "site") as made:
            yield made
    except NoNamespacesError as refused:
        pytest.skip(str(refused))


def _stack(folder: Path, hosts: dict[str, Json], network: Site) -> HostsStack:
    secrets = {LOGIN_KEY: network.far.private_key, _NEAR_KEY: network.near.private_key}
    return HostsStack(folder / "stack", tegra_stack(hosts), secrets)


def test_a_host_that_only_its_bastion_reaches_is_prepared_and_restored_through_it(
    network: Site, tmp_path: Path
) -> None:
    bastion_machine = jetson_at(network.near, network.near_address)
    bastion = {
        "address": network.near_address,
        "port": network.near.port,
        "user": network.near.user,
        "host_key": network.near.host_key,
        "private_key_secret": _NEAR_KEY,
    }
    machines = {
        name: jetson_at(network.far, address)
        for name, address in zip(("direct", "wrong-bastion", "behind-bastion"), network.far_addresses, strict=False)
    }
    hosts = {name: ssh_host(network.far, machine) for name, machine in machines.items()}
    hosts["wrong-bastion"]["ssh"]["bastion"] = bastion | {"host_key": another_key(network.near)}
    hosts["behind-bastion"]["ssh"]["bastion"] = bastion
    before = {name: content(machine.root) for name, machine in machines.items()}
    stack = _stack(tmp_path, hosts, network)
    failed = stack.up("--continue-on-error", expect=1)
    assert "No route to host" in failed.output, "the host must not be reached but through its bastion"
    assert "Host key verification failed" in failed.output, "a bastion is pinned as its host is"
    assert [name for name, machine in machines.items() if content(machine.root) != before[name]] == ["behind-bastion"]
    assert not list(machines["wrong-bastion"].home.iterdir())

    for name in ("direct", "wrong-bastion"):
        stack.settings = changed(stack.settings, f"hosts.{name}.ssh.bastion", bastion)
    stack.up()
    assert [name for name, machine in machines.items() if content(machine.root) == before[name]] == []
    stack.destroy()
    assert {name: content(machine.root) for name, machine in machines.items()} == before
    assert not list(bastion_machine.home.iterdir()), "a bastion only passes on"


def test_a_link_that_goes_down_mid_command_is_a_bounded_error_and_the_next_run_converges(
    network: Site, tmp_path: Path
) -> None:
    machine = jetson_at(network.near, network.near_address)
    held = hold(machine)
    host = changed(ssh_host(network.near, machine), "ssh.private_key_secret", _NEAR_KEY)
    stack = _stack(tmp_path, {"jetson-1": host}, network)
    stack.environment[command_plugin.KEEP_ALIVE] = "1"
    output: list[str] = []
    engine = threading.Thread(target=lambda: output.append(stack.up(expect=1).output))
    engine.start()
    eventually(held.with_suffix(".reached").exists, within_seconds=120)
    network.cut()
    engine.join()
    assert "hosts-jetson-1-configured" in output[0]

    held.unlink()
    config = machine.path(TOOLKIT_CONFIG)
    eventually(lambda: 'mode = "csv"' in config.read_text(encoding="utf-8"), within_seconds=120)
    configured = content(machine.root)
    network.mend()
    assert stack.up().changed >= {"hosts-jetson-1-configured"}
    assert content(machine.root) == configured, "the agent had done its work beyond the cut link"
    assert stack.up().changed == frozenset()
