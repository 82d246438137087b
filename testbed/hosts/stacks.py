"""Hosts of a stack as settings, and stacks of hosts alone on the real engine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import toolchain
from testbed.engine import Stack
from testbed.hosts import command_plugin
from testbed.hosts.sshd import Machine, Sshd
from testbed.stacks import Json, changed, jetson
from toolchain.programs import LANGUAGE_PYTHON, PULUMI

LOGIN_KEY = "login-key"
"""The secret that holds the login's private key."""
ENGINE_PROGRAMS = (PULUMI, LANGUAGE_PYTHON)


def ssh_host(server: Sshd, machine: Machine, **more: object) -> Json:
    """A host of a stack: a machine of an sshd, given up after few attempts."""
    ssh = {
        "address": machine.address,
        "port": server.port,
        "user": server.user,
        "host_key": server.host_key,
        "private_key_secret": LOGIN_KEY,
        "dial": {"attempts": 2, "timeout_seconds": 20},
    }
    return {"ssh": ssh, **more}


def another_key(server: Sshd) -> str:
    """A well-formed key that is not the server's."""
    kind, data = server.host_key.split()
    other = "B" if data[-10] == "A" else "A"
    return f"{kind} {data[:-10]}{other}{data[-9:]}"


def tegra_stack(hosts: Mapping[str, Json], *, installs: str = "hosts") -> Json:
    """A Jetson stack whose Tegra nodes are these hosts, with measured memory and another mode than they have.

    By default of hosts alone, without a cluster.
    """
    stack = changed(jetson(), "installs", installs)
    stack = changed(stack, "platform.container_runtime_mode", "csv")
    stack = changed(stack, "platform.tegra_nodes", {node: {} for node in hosts})
    return changed(stack, "hosts", dict(hosts))


class HostsStack(Stack):
    """A stack with hosts, with the stand-in of the command plugin; by default with the programs for hosts alone."""

    def __init__(  # noqa: PLR0913 - what a stack is made of
        self,
        folder: Path,
        settings: Json,
        secrets: Mapping[str, str],
        *,
        name: str = "test",
        programs: tuple[toolchain.Program, ...] = ENGINE_PROGRAMS,
        passphrase: str | None = None,
    ) -> None:
        environment = toolchain.environment(programs)
        environment = command_plugin.environment(folder / "plugin", environment) | {
            # Where the agent is kept.
            "XDG_DATA_HOME": str(folder / "data"),
            "TMPDIR": str(folder / "tmp"),
        }
        (folder / "tmp").mkdir()
        super().__init__(folder, settings, environment, name=name, passphrase=passphrase)
        for secret, value in secrets.items():
            self.set_secret(secret, value)

    def is_dialling(self) -> bool:
        """Whether the plugin has a connection open or tries to have one."""
        return any((self.folder / "tmp").glob(f"{command_plugin.SESSIONS}*"))

    def output(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """An output of the stack."""
        return json.loads(self.run("stack", "output", "--json").output)[name]
