"""The machine that runs Pulumi as a host, without SSH."""

import os
from pathlib import Path

from testbed.hosts.machines import TOOLKIT_CONFIG, content, local_jetson, with_sudo
from testbed.hosts.stacks import HostsStack, tegra_stack
from tests.support.hosts.settings import local_host

_PASSWORD = "correct horse battery staple"


def test_the_local_machine_is_prepared_and_restored_without_ssh(tmp_path: Path) -> None:
    machine = with_sudo(local_jetson(tmp_path / "machine"), _PASSWORD)
    before = content(machine.root)
    host = local_host(sudo_password_secret="sudo-password")
    stack = HostsStack(tmp_path / "stack", tegra_stack({"jetson-1": host}), {"sudo-password": _PASSWORD})
    path = os.pathsep.join([str(machine.folder / "bin"), stack.environment["PATH"]])
    stack.environment |= {"PATH": path}
    assert stack.up().changed >= {"hosts-jetson-1-probe", "hosts-jetson-1-configured"}
    assert 'mode = "csv"' in machine.path(TOOLKIT_CONFIG).read_text(encoding="utf-8")
    assert stack.output("gpu_memory_mib").keys() == {"jetson-1"}
    assert stack.up().changed == frozenset()
    assert not {"command:remote:Command", "command:remote:CopyToRemote"} & {r["type"] for r in stack.resources()}
    assert _PASSWORD not in str(stack.resources())
    stack.destroy()
    assert content(machine.root) == before
